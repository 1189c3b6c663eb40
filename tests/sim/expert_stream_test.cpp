// SPDX-License-Identifier: Apache-2.0
// Tests that experts chosen by a prompt's rows are copied to the device for a step: as many bytes as the rule says,
// with the CPU's results.
#include "runtime/expert_stream.h"

#include <atomic>
#include <chrono>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"
#include "kv/sequence.h"
#include "model/minimax_m2.h"
#include "runtime/forward_pass.h"
#include "runtime/step_space.h"
#include "sim/devices.h"
#include "sim/expert_caches.h"
#include "sim/placement_checks.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/requests.h"

namespace minim::test {
namespace {

using runtime::ExpertMoves;
using runtime::StreamRule;

constexpr double k_never = std::numeric_limits<double>::infinity();

// Opens a model whose experts are all with the host; the device has room for `bytes` of them.
std::shared_ptr<const model::Model> with_stream(const Devices& devices, uint64_t bytes,
                                                const StreamRule& rule,
                                                const std::string& path = bundled_model_path(),
                                                ExpertMoves moves = ExpertMoves::fixed) {
    return with_cache(devices, bytes, moves, path, INT32_MAX, rule);
}

// What a step chose, [layer][slot].
using Choices = std::vector<std::vector<int32_t>>;

// Evaluates a step of a new sequence in which each row wants logits, and returns its choices.
Choices step_of(const model::Model& model, const std::vector<int32_t>& ids) {
    const int64_t n = std::ssize(ids);
    kv::Sequence cache(engine::make_pool(model, {}, {}), n);
    cache.hold(0, n);
    runtime::StepSpace space(model.placement().stages(), model::shape_of(model.config()), n, n);
    std::vector<runtime::StepRow> rows;
    for (int64_t i = 0; i < n; ++i) rows.push_back({ids[static_cast<size_t>(i)], {&cache.view(), i}, true});
    std::vector<float> logits(ids.size() * static_cast<size_t>(model.config().n_vocab));
    Choices choices;
    const auto observer = [&](int64_t, int64_t n_rows, const float*, const int32_t* chosen, const float*) {
        choices.emplace_back(chosen, chosen + n_rows * model.config().n_expert_used);
    };
    model.forward().step(rows, space, logits.data(), nullptr, observer);
    return choices;
}

// Applies the rule of choose_streamed() in the slow way: tries all numbers of experts to copy, in the order of their
// slots, and takes the one that the comment there describes.
std::vector<int32_t> chosen_by_rule(const std::vector<int32_t>& n_slots, double break_even) {
    std::vector<int32_t> order(n_slots.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
        return n_slots[static_cast<size_t>(a)] > n_slots[static_cast<size_t>(b)];
    });
    const auto slots_from = [&](size_t first) {
        double sum = 0.0;
        for (size_t i = first; i < order.size(); ++i) sum += n_slots[static_cast<size_t>(order[i])];
        return sum;
    };
    size_t n = 0;
    while (n < order.size() && n_slots[static_cast<size_t>(order[n])] > 0 &&
           n_slots[static_cast<size_t>(order[n])] >= break_even)
        ++n;
    while (n > 0 && slots_from(n - 1) < static_cast<double>(n) * break_even) --n;
    order.resize(n);
    return order;
}

}  // namespace

TEST_CASE("stream: the choice is by slots, and the host gets what it is done with before the copies are") {
    const auto chosen = [](const std::vector<int32_t>& n_slots, double break_even) {
        std::vector<int32_t> list;
        runtime::choose_streamed(n_slots, {break_even, 8}, list);
        return list;
    };
    CHECK(chosen({0, 3, 1, 9}, 0.0) == std::vector<int32_t>{3, 1, 2});
    CHECK(chosen({0, 3, 1, 9}, k_never).empty());
    CHECK(chosen({10, 10, 10}, 10.5).empty());
    // Copies take as long as 30 slots, the host none: it gets one expert, then the others are copied in the time of 20.
    CHECK(chosen({10, 10, 10}, 10.0) == std::vector<int32_t>{0, 1});
    CHECK(chosen({4, 100, 5, 0, 100}, 50.0) == std::vector<int32_t>{1, 4});
    CHECK(chosen({}, 0.0).empty());
    std::mt19937 random(7);
    for (int i = 0; i < 2000; ++i) {
        std::vector<int32_t> n_slots(random() % 12);
        for (int32_t& n : n_slots) n = static_cast<int32_t>(random() % 20) - 8;
        for (int32_t& n : n_slots) n = std::max(n, 0);
        const double break_even = static_cast<double>(random() % 40) / 3.0;
        CHECK(chosen(n_slots, break_even) == chosen_by_rule(n_slots, break_even));
    }
}

TEST_CASE("stream: whatever is copied, the logits are the CPU's, bit for bit") {
    const SixLayers six;
    const Devices devices = make_devices(2);
    const uint64_t all = all_experts(*with_stream({devices[0]}, 1, {}, six.path));
    const auto check = [&](size_t n_devices, double part, const StreamRule& rule) {
        INFO(n_devices << " devices, part " << part << ", break even at " << rule.break_even_slots
                       << " slots, chunks of " << rule.most_chunk_experts);
        const Devices used(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(n_devices));
        const auto model =
            with_stream(used, static_cast<uint64_t>(part * static_cast<double>(all)), rule, six.path);
        for (const size_t chunk : {90, 41}) CHECK(logits_on(model, six.ids, chunk) == six.expected);
        CHECK((state_of(*model).n_streamed > 0) == (rule.break_even_slots < k_never));
        if (rule.most_chunk_experts > 1) return;
        for (const size_t chunk : {7, 1}) CHECK(logits_on(model, six.ids, chunk) == six.expected);
    };
    for (const double break_even : {0.0, 3.0, 30.0})
        for (const int64_t chunk_experts : {1, 2, 3, 100}) check(1, 0.6, {break_even, chunk_experts});
    check(1, 0.2, {3.0, 2});
    check(1, 0.6, {k_never, 2});
    for (const double part : {0.2, 0.6}) check(2, part, {12.0, 2});
}

TEST_CASE("stream: experts are copied for steps while others move in and out") {
    const SixLayers six;
    const Devices devices = make_devices(1);
    const uint64_t all = all_experts(*with_stream(devices, 1, {}, six.path));
    for (const ExpertMoves moves : {ExpertMoves::reproducible, ExpertMoves::eager}) {
        const auto model = with_stream(devices, all / 3, {2.0, 2}, six.path, moves);
        for (const size_t chunk : {45, 1, 40, 90}) CHECK(logits_on(model, six.ids, chunk) == six.expected);
        CHECK(state_of(*model).n_streamed > 0);
        CHECK(state_of(*model).n_moves > 0);
    }
}

TEST_CASE("stream: a step copies the bytes of the rule, no cached expert and none without a slot") {
    const SixLayers six;
    for (const double break_even : {0.0, 2.0, 12.0, 30.0, k_never}) {
        for (const int64_t chunk_experts : {1, 3, 100}) {
            const Devices devices = make_devices(1);
            const uint64_t all = all_experts(*with_stream(devices, 1, {}, six.path));
            const auto model = with_stream(devices, all / 2, {break_even, chunk_experts}, six.path);
            const model::Config& config = model->config();
            const runtime::ExpertPool& pool = *model->expert_pools()[0];
            const sim::Counts& counts = devices[0]->counts();
            const uint64_t before = counts.bytes_from_host;
            const Choices choices = step_of(*model, six.ids);
            REQUIRE(choices.size() == 6);
            uint64_t expected = 0;
            uint64_t copied_bytes = 0;
            int64_t n_copied = 0;
            const uint64_t table = static_cast<uint64_t>(config.n_expert) * sizeof(backend::ExpertPlace);
            for (int64_t l = 0; l < 6; ++l) {
                std::vector<int32_t> n_slots(static_cast<size_t>(config.n_expert));
                for (const int32_t id : choices[static_cast<size_t>(l)])
                    if (pool.on_host(l).is_here(id)) ++n_slots[static_cast<size_t>(id)];
                const std::vector<int32_t> copied = chosen_by_rule(n_slots, break_even);
                const runtime::PooledLayer& layer = pool.layer(l);
                for (const int32_t e : copied) {
                    CHECK(pool.on_host(l).is_here(e));
                    const auto i = static_cast<size_t>(e);
                    copied_bytes += layer.gate[i]->bytes() + layer.up[i]->bytes() + layer.down[i]->bytes();
                    n_slots[i] = 0;
                }
                n_copied += std::ssize(copied);
                if (break_even < k_never) {
                    const auto chunk = static_cast<size_t>(pool.stream()->chunk_experts());
                    expected += (copied.size() + chunk - 1) / chunk * table;  // of each chunk
                    if (!copied.empty()) expected += table;                   // of what is not the host's
                }
                expected += static_cast<uint64_t>(std::accumulate(n_slots.begin(), n_slots.end(), 0)) *
                            static_cast<uint64_t>(config.hidden) * sizeof(float);
            }
            INFO("break even at " << break_even << " slots, chunks of " << chunk_experts);
            CHECK(counts.bytes_from_host - before == expected + copied_bytes);
            CHECK(state_of(*model).streamed_bytes == copied_bytes);
            CHECK(state_of(*model).n_streamed == n_copied);
            CHECK((n_copied > 0) == (break_even < k_never));
        }
    }
}

TEST_CASE("stream: the areas are part of the cache's room, and there are none where they are of no use") {
    const SixLayers six;
    const Devices devices = make_devices(1);
    const auto without = with_stream(devices, 1, {}, six.path);
    const uint64_t all = all_experts(*without);
    const uint64_t expert = one_expert(*without);
    const auto n_places = [&](uint64_t bytes, const StreamRule& rule) {
        return state_of(*with_stream(devices, bytes, rule, six.path)).n_places;
    };
    // Two areas of an expert each, and their tables.
    CHECK(n_places(10 * expert, {}) == 10);
    CHECK(n_places(10 * expert, {4.0, 1}) == 7);
    CHECK(n_places(all, {4.0, 1}) == static_cast<int64_t>(all / expert));
    const auto small = with_stream(devices, 2 * expert, {4.0, 1}, six.path);
    CHECK(small->expert_pools()[0]->stream() == nullptr);
    CHECK(state_of(*small).n_places == 2);
    // No more of the device's memory is taken than the given bytes.
    const uint64_t used = devices[0]->used_bytes();
    const auto model = with_stream(devices, 10 * expert, {0.0, 1}, six.path);
    const auto plain = with_stream(devices, 10 * expert, {}, six.path);
    const auto& pool = *model->expert_pools()[0];
    CHECK(pool.device_bytes() + pool.stream()->device_bytes() <=
          10 * expert + 6 * static_cast<uint64_t>(model->config().n_expert) * sizeof(backend::ExpertPlace));
    CHECK(devices[0]->used_bytes() > used);
}

TEST_CASE("stream: texts, drafts, forks, states, requests and threads are the CPU's") {
    const Devices devices = make_devices(1);
    const auto model =
        with_stream(devices, 1 << 20, {3.0, 2}, bundled_model_path(), ExpertMoves::reproducible);
    check_texts(model);
    check_states(model);
    check_threads(model);
    check_cancelled_evaluation(model);
    const Logger silent;
    engine::Engine engine(model, engine_params(), silent);
    CHECK(check_requests(engine) >= 128);
    CHECK(state_of(*model).n_streamed > 0);
}

TEST_CASE("stream: whatever fails, an error names the device and nothing is left on it") {
    const DevicesThatFail make = [](const sim::Options& options) { return make_devices(1, options); };
    const Failures failures = fail_at_each("sim:0", make, [](const Devices& devices) {
        const auto model = with_stream(devices, 1 << 20, {0.0, 2});
        engine::Session session = make_session(model, 100);
        try {
            session.eval(some_ids(40), false, {}, nullptr);
        } catch (const Error&) {
            CHECK(session.n_tokens() == 0);
            throw;
        }
        CHECK(state_of(*model).n_streamed > 0);
    });
    CHECK(failures.allocations > 4);
    CHECK(failures.transfers > 40);
    CHECK(failures.operations > 40);
}

TEST_CASE("stream: an exchange that fails is an error within a moment") {
    check_failing_exchanges(6, [](const Devices& devices) {
        logits_on(with_stream(devices, 1 << 20, {2.0, 1}), some_ids(40), 40);
    });
}

TEST_CASE("stream: a cancelled step ends, wherever it is, and the session goes on") {
    const SixLayers six;
    const Devices devices = make_devices(1);
    const uint64_t all = all_experts(*with_stream(devices, 1, {}, six.path));
    const auto model = with_stream(devices, all / 2, {2.0, 1}, six.path);
    engine::Session session = make_session(model, 200);
    const std::vector<int32_t> start(six.ids.begin(), six.ids.begin() + 40);
    all_logits(session, start, 40);
    int n_cancelled = 0;
    for (int n = 0; n < 80; ++n) {
        std::atomic<int64_t> n_asked = 0;  // by both threads
        const CancelToken cancel([&] { return ++n_asked > n; });
        try {
            session.eval(std::vector<int32_t>(35, 7), false, {}, &cancel);
            session.truncate(40);
        } catch (const Error& error) {
            CHECK(error.status() == Status::cancelled);
            ++n_cancelled;
        }
        CHECK(session.n_tokens() == 40);
    }
    CHECK(n_cancelled > 12);
    const std::vector<int32_t> rest(six.ids.begin() + 40, six.ids.end());
    const std::vector<float> logits = all_logits(session, rest, 50);
    CHECK(std::equal(logits.begin(), logits.end(), six.expected.end() - std::ssize(logits)));
}

TEST_CASE("stream: the device computes a chunk while the next one is copied") {
    const SixLayers six;
    constexpr double k_chunk_seconds = 0.02;
    const Devices plain = make_devices(1);
    const uint64_t expert = one_expert(*with_stream(plain, 1, {}, six.path));
    const Devices devices =
        make_devices(1, {.bytes_per_second = static_cast<double>(expert) / k_chunk_seconds,
                         .experts_seconds = k_chunk_seconds});
    // If a copy did not overlap the computation, each copied expert would take twice k_chunk_seconds. A machine that is busy with other work
    // may delay one step.
    double taken = 0.0;
    double n_copied = 0.0;
    for (int i = 0; i < 3 && (i == 0 || taken >= 1.75 * k_chunk_seconds * n_copied); ++i) {
        const auto model = with_stream(devices, 8 * expert, {0.0, 1}, six.path);
        const auto start = std::chrono::steady_clock::now();
        step_of(*model, six.ids);
        taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        n_copied = static_cast<double>(state_of(*model).n_streamed);
        REQUIRE(n_copied >= 12.0);
    }
    CHECK(taken < 1.75 * k_chunk_seconds * n_copied);
    CHECK(taken > k_chunk_seconds * n_copied);
}

}  // namespace minim::test
