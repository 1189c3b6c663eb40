// SPDX-License-Identifier: Apache-2.0
// Tests layers whose experts are partly on a device and partly with the host: whatever is on the device, the model
// answers as on the CPU.
#include "runtime/expert_pool.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <random>

#include "base/error.h"
#include "model/expert_profile.h"
#include "sim/devices.h"
#include "sim/expert_caches.h"
#include "sim/placement_checks.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/requests.h"
#include "support/temporary_folder.h"

namespace minim::test {
namespace {

using runtime::ExpertMoves;

// Steps while experts move, with everything that touches the device on the way.
void talk_while_experts_move(const Devices& devices) {
    const auto model = with_cache(devices, 1 << 18, ExpertMoves::reproducible);
    engine::Session session = make_session(model, 150);
    for (const size_t n : {3, 1, 1, 1, 2, 1}) {
        const int64_t n_before = session.n_tokens();
        try {
            all_logits(session, some_ids(n), n);
        } catch (const Error&) {
            CHECK(session.n_tokens() == n_before);
            throw;
        }
    }
}

}  // namespace

TEST_CASE("pool: with any part of the experts on the device, the logits are the CPU's, bit for bit") {
    const SixLayers six;
    for (const size_t n_devices : {1, 2}) {
        const Devices devices = make_devices(n_devices);
        const uint64_t all = all_experts(*with_cache(devices, 1, ExpertMoves::fixed, six.path));
        REQUIRE(all > 0);
        for (const double part : {0.0, 0.02, 0.3, 0.5, 1.0}) {
            const auto bytes = std::max(uint64_t{1}, static_cast<uint64_t>(part * static_cast<double>(all)));
            const auto model = with_cache(devices, bytes, ExpertMoves::fixed, six.path);
            for (const size_t chunk : {90, 7, 1}) {
                INFO(n_devices << " devices, part " << part << " chunk " << chunk);
                CHECK(logits_on(model, six.ids, chunk) == six.expected);
            }
            const runtime::ExpertPoolState state = state_of(*model);
            CHECK(state.bytes <= bytes);
            CHECK(state.n_moves == 0);
            if (part == 1.0) CHECK(state.n_misses == 0);
            if (part == 0.0) CHECK(state.n_hits == 0);
            if (part == 0.5) CHECK((state.n_hits > 0 && state.n_misses > 0));
        }
    }
}

TEST_CASE("pool: with any set of experts on the device, the logits are the CPU's, bit for bit") {
    const SixLayers six;
    const TemporaryFolder folder;
    const std::string path = folder / "uses.json";
    const std::vector<int32_t> ids(six.ids.begin(), six.ids.begin() + 30);
    const std::vector<float> expected = logits_on(model_on_cpu(six.path), ids, 30);
    const auto unlimited = make_devices(1);
    const auto whole = with_cache(unlimited, 1, ExpertMoves::fixed, six.path);
    const auto n_expert = static_cast<size_t>(whole->config().n_expert);
    const uint64_t expert = one_expert(*whole);
    const auto check = [&](const model::ExpertUses& uses, size_t n_places) {
        std::ofstream file(path);
        file << "{\"minim_expert_uses\": 1, \"uses\": [";
        for (size_t layer = 0; layer < uses.size(); ++layer) {
            file << (layer == 0 ? "[" : ", [");
            for (size_t e = 0; e < uses[layer].size(); ++e) file << (e == 0 ? "" : ", ") << uses[layer][e];
            file << ']';
        }
        file << "]}";
        file.close();
        const Devices devices = make_devices(1);
        model::OpenOptions options;
        options.expert_moves = ExpertMoves::fixed;
        options.expert_profile = path;
        const auto model =
            model_placed(machine_of({devices[0]}), {.cache_bytes = expert * n_places}, options, six.path);
        REQUIRE(state_of(*model).n_places == static_cast<int64_t>(n_places));
        for (size_t layer = 0; layer < uses.size(); ++layer)
            for (size_t e = 0; e < n_expert; ++e)
                CHECK((model->expert_pools()[0]->on_host(static_cast<int64_t>(layer)).is_on_device[e] != 0) ==
                      (uses[layer][e] > 0.0F));
        for (const size_t chunk : {30, 7, 1}) CHECK(logits_on(model, ids, chunk) == expected);
    };
    const model::ExpertUses none(6, std::vector<float>(n_expert));
    for (size_t i = 0; i < 6 * n_expert; ++i) {  // each expert alone
        model::ExpertUses uses = none;
        uses[i / n_expert][i % n_expert] = 1.0F;
        check(uses, 1);
    }
    std::mt19937 random(5);
    for (int i = 0; i < 4; ++i) {
        model::ExpertUses uses = none;
        size_t n = 0;
        for (auto& layer : uses)
            for (float& use : layer)
                if (random() % 10 < 3) use = static_cast<float>(++n);
        if (n > 0) check(uses, n);
    }
}

TEST_CASE("pool: the host's weights are pinned while experts may be copied, and only then") {
    const SixLayers six;
    model::OpenOptions options;
    options.residence = checkpoint::HostStorage::owned;
    const auto read = [&](const Devices& devices, uint64_t bytes) {
        const auto model = model_placed(machine_of({devices[0]}), {.cache_bytes = bytes}, options, six.path);
        const uint64_t pinned = devices[0]->pinned_bytes();
        CHECK(logits_on(model, six.ids, 7) == six.expected);
        return pinned;
    };
    const Devices devices = make_devices(1);
    const uint64_t all = all_experts(*with_cache(devices, 1, ExpertMoves::fixed, six.path));
    CHECK(devices[0]->pinned_bytes() == 0);
    CHECK(read(devices, all / 2) >= all);
    CHECK(devices[0]->pinned_bytes() == 0);
    options.residence = checkpoint::HostStorage::mapped;
    CHECK(read(devices, all / 2) == 0);
    options.residence = checkpoint::HostStorage::owned;
    CHECK(read(devices, 2 * all) == 0);
    CHECK(read(make_devices(1, {.refuses_to_pin = true}), all / 2) == 0);
}

TEST_CASE("pool: while experts move in and out, the logits are the CPU's, bit for bit") {
    const SixLayers six;
    for (const ExpertMoves moves : {ExpertMoves::reproducible, ExpertMoves::eager}) {
        const Devices devices = make_devices(1);
        const uint64_t all = all_experts(*with_cache(devices, 1, ExpertMoves::fixed, six.path));
        const auto model = with_cache(devices, all / 4, moves, six.path);
        for (const size_t chunk : {1, 7, 1, 90}) CHECK(logits_on(model, six.ids, chunk) == six.expected);
        CHECK(state_of(*model).n_moves > 0);
    }
}

TEST_CASE("pool: reproducible moves depend on the experts chosen alone") {
    const SixLayers six;
    std::vector<int64_t> hits;
    for (const double bytes_per_second : {0.0, 2e7}) {
        const Devices devices = make_devices(1, {.bytes_per_second = bytes_per_second});
        const auto model = with_cache(devices, 1 << 18, ExpertMoves::reproducible, six.path);
        CHECK(logits_on(model, six.ids, 1) == six.expected);
        hits.push_back(state_of(*model).n_hits);
    }
    CHECK(hits[0] == hits[1]);
}

TEST_CASE("pool: texts, drafts, forks, states, requests and threads are the CPU's") {
    const Devices devices = make_devices(1);
    const auto model = with_cache(devices, 1 << 20, ExpertMoves::reproducible);
    check_texts(model);
    check_states(model);
    check_threads(model);
    check_cancelled_evaluation(model);
    const Logger silent;
    engine::Engine engine(model, engine_params(), silent);
    check_requests(engine);
    CHECK(state_of(*model).n_hits > 0);
    CHECK(state_of(*model).n_misses > 0);
}

TEST_CASE("pool: layers with and without shared experts are mixed") {
    const SixLayers six;
    const Devices devices = make_devices(2);
    const auto model = with_cache(devices, 1 << 19, ExpertMoves::reproducible, six.path, 4);
    for (const size_t chunk : {90, 7, 1}) CHECK(logits_on(model, six.ids, chunk) == six.expected);
}

TEST_CASE("pool: a profile of one run says which experts the next one begins with") {
    const SixLayers six;
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/uses.json";
    const auto opened = [&](runtime::ExpertMoves moves) {
        const Devices devices = make_devices(1);
        const uint64_t all = all_experts(*with_cache(devices, 1, ExpertMoves::fixed, six.path));
        model::OpenOptions options;
        options.expert_moves = moves;
        options.expert_profile = path;
        return model_placed(machine_of({devices.begin(), devices.end()}), {.cache_bytes = all / 4}, options,
                            six.path);
    };
    const auto first = opened(ExpertMoves::fixed);  // there is no such file yet
    CHECK(logits_on(first, six.ids, 7) == six.expected);
    model::write_expert_profile(path, *first);
    const auto second = opened(ExpertMoves::fixed);
    CHECK(logits_on(second, six.ids, 7) == six.expected);
    CHECK(state_of(*second).n_hits > state_of(*first).n_hits);
    const model::ExpertUses uses = model::read_expert_profile(path, first->config());
    CHECK(uses.size() == 6);
    CHECK(uses.back() != std::vector<float>(uses.back().size()));

    const auto refused = [&](const std::string& text, Reason reason, const char* message) {
        std::ofstream(path) << text;
        expect_error(Status::format, message, [&] { opened(ExpertMoves::fixed); });
        try {
            model::read_expert_profile(path, first->config());
        } catch (const Error& error) {
            CHECK(error.reason() == reason);
        }
    };
    refused("[1", Reason::format, "uses.json");
    refused("{\"uses\": []}", Reason::format, "'minim_expert_uses' or 'uses' is missing");
    refused("{\"minim_expert_uses\": 2, \"uses\": []}", Reason::format, "a profile of version 2");
    refused("{\"minim_expert_uses\": 1, \"uses\": [[1]]}", Reason::shape,
            "uses of 1 layers, the model has 6");
    refused("{\"minim_expert_uses\": 1, \"uses\": [[1], 0, 0, 0, 0, 0]}", Reason::shape,
            "layer 0 has uses of 1 experts");
    std::string negative = "{\"minim_expert_uses\": 1, \"uses\": [[-1";
    for (int64_t e = 1; e < first->config().n_expert; ++e) negative += ",0";
    refused(negative + "],0,0,0,0,0]}", Reason::format, "an expert of layer 0 was used -1 times");
    expect_error(Status::invalid, "without a cache",
                 [&] { model::write_expert_profile(path, *model_on_cpu()); });
}

TEST_CASE("pool: whatever fails, an error names the device and nothing is left on it") {
    const DevicesThatFail make = [](const sim::Options& options) { return make_devices(1, options); };
    const Failures failures = fail_at_each("sim:0", make, [](const Devices& devices) {
        const auto model = with_cache(devices, 1 << 18, ExpertMoves::fixed);
        logits_on(model, some_ids(3), 2);
    });
    CHECK(failures.allocations > 3);
    CHECK(failures.transfers > 20);
    CHECK(failures.operations > 20);
}

TEST_CASE("pool: what fails while experts move is an error or changes nothing, and nothing is left") {
    Devices devices = make_devices(1);
    talk_while_experts_move(devices);
    const sim::Counts& all = devices[0]->counts();
    struct Kind {
        int64_t sim::Options::*failing;
        int64_t count;
        Status status;
    };
    for (const Kind& kind :
         {Kind{&sim::Options::failing_allocation, all.allocations, Status::out_of_device_memory},
          Kind{&sim::Options::failing_transfer, all.transfers, Status::device_lost},
          Kind{&sim::Options::failing_operation, all.operations, Status::device_lost},
          Kind{&sim::Options::failing_exchange, all.exchanges, Status::device_lost}}) {
        int64_t n_failed = 0;
        const int64_t n_tried = std::min(kind.count, int64_t{k_has_thread_sanitizer ? 40 : 80});
        for (int64_t i = 1; i <= n_tried; ++i) {  // evenly spread if there are more
            sim::Options options;
            options.*kind.failing = i * kind.count / n_tried;
            devices = make_devices(1, options);
            try {
                talk_while_experts_move(devices);
            } catch (const Error& error) {
                ++n_failed;
                INFO(error.what());
                CHECK(error.status() == kind.status);
                CHECK(std::string(error.what()).find("sim:0") != std::string::npos);
            }
            CHECK(is_empty(devices));
        }
        // The last moves may still be under way at the end.
        CHECK(n_failed >= n_tried - 8);
        CHECK(n_tried >= std::min(kind.count, int64_t{k_has_thread_sanitizer ? 40 : 50}));
    }
}

TEST_CASE("pool: a device that is lost while the host waits for it is an error within 100 ms") {
    const SixLayers six;
    const auto prepare = [&](const Devices& devices) {
        return make_session(with_cache(devices, 1 << 17, ExpertMoves::fixed, six.path), 100);
    };
    int64_t first = 0;
    int64_t last = 0;
    {
        const Devices devices = make_devices(1);
        engine::Session session = prepare(devices);
        session.eval(some_ids(1), false, {}, nullptr);
        first = devices[0]->counts().operations;
        session.eval(some_ids(1), false, {}, nullptr);
        last = devices[0]->counts().operations;
    }
    CHECK(last - first > 6 * 8);
    for (int64_t n = first + 1; n <= last; ++n) {
        double fastest = 1e9;
        for (int attempt = 0; attempt < 3 && fastest >= 0.1; ++attempt) {  // others use this machine too
            const Devices devices = make_devices(1, {.failing_operation = n});
            engine::Session session = prepare(devices);
            session.eval(some_ids(1), false, {}, nullptr);
            const auto start = std::chrono::steady_clock::now();
            expect_error(Status::device_lost, "sim:0: the device was lost",
                         [&] { session.eval(some_ids(1), false, {}, nullptr); });
            const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
            fastest = std::min(fastest, taken.count());
        }
        INFO("operation " << n << " of " << first + 1 << " to " << last);
        CHECK(fastest < 0.1);
    }
}

TEST_CASE("pool: an exchange that fails is an error within a moment, wherever it fails") {
    constexpr int64_t k_exchanges = 12;  // two steps of three layers, two sides each
    check_failing_exchanges(k_exchanges, [](const Devices& devices) {
        logits_on(with_cache(devices, 1 << 18, ExpertMoves::reproducible), some_ids(4), 2);
    });
}

TEST_CASE("pool: a cancelled step ends, wherever it is, and the session goes on") {
    const SixLayers six;
    const Devices devices = make_devices(1);
    const auto model = with_cache(devices, 1 << 18, ExpertMoves::reproducible, six.path);
    engine::Session session = make_session(model, 200);
    const std::vector<int32_t> start(six.ids.begin(), six.ids.begin() + 20);
    all_logits(session, start, 20);
    for (int n = 0; n < 40; ++n) {
        std::atomic<int64_t> n_asked = 0;  // also by the thread that answers
        const CancelToken cancel([&] { return ++n_asked > n; });
        try {
            session.eval(std::vector<int32_t>(10, 7), false, {}, &cancel);
            session.truncate(20);
        } catch (const Error& error) {
            CHECK(error.status() == Status::cancelled);
        }
        CHECK(session.n_tokens() == 20);
    }
    const std::vector<int32_t> rest(six.ids.begin() + 20, six.ids.end());
    const std::vector<float> logits = all_logits(session, rest, 70);
    CHECK(std::equal(logits.begin(), logits.end(), six.expected.end() - std::ssize(logits)));
}

}  // namespace minim::test
