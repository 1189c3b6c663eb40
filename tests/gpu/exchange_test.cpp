// SPDX-License-Identifier: Apache-2.0
// Steps whose experts lie partly on a device and partly with the host, which answers in the middle of a step (backend/exchange.h).
#include "backend/exchange.h"

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "base/cancel.h"
#include "cuda/exchange.h"
#include "cuda/fast/operations.h"
#include "cuda/stream.h"
#include "gpu/fixture.h"
#include "gpu/launch_paths.h"
#include "gpu/support.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::Exchange;
using backend::ExpertPlace;
using backend::KvLayout;

// The ways of an exchange (MINIM_CUDA_PATHS): by flags, and by pieces.
constexpr const char* k_ways_of_exchange[] = {"", "exchange-pieces"};

constexpr int64_t k_turns = 12;
constexpr int64_t k_experts = 9;
constexpr int64_t k_used = 3;

bool is_on_device(int64_t expert) {
    return expert % 2 == 0;
}

// What the host answers: any numbers that depend on the turn, the input and the expert.
float answer_of(int64_t turn, float h, int32_t expert) {
    return h * 2.0F + static_cast<float>(100 * turn + expert);
}

// Turns on a device, each with half the inputs of the one before.
struct Turns {
    Turns(Fixture& fixture, int64_t n_rows, int64_t width) : f(fixture), n(n_rows), hidden(width) {
        limits = k_limits;
        limits.n_rows = n;
        limits.hidden = hidden;
        stream = f.device->reserve(limits);
        exchange = f.device->make_exchange(limits, k_turns);
        REQUIRE(exchange != nullptr);
        Random random(3);
        for (int64_t i = 0; i < n * k_used; ++i)
            host_ids.push_back(static_cast<int32_t>((i / k_used + 2 * (i % k_used)) % k_experts));
        host_h = random.normal(n * hidden);
        std::vector<ExpertPlace> places(k_experts);
        for (int64_t e = 0; e < k_experts; ++e)
            if (is_on_device(e))
                places[static_cast<size_t>(e)].gate = reinterpret_cast<const std::byte*>(this);
        table = f.put(places);
        ids = f.put(host_ids);
        h = f.put(host_h);
        out = f.put(std::vector<float>(static_cast<size_t>(k_turns) * n_outputs(), k_before));
    }

    static constexpr float k_before = -7.0F;
    size_t n_outputs() const { return host_ids.size() * static_cast<size_t>(hidden); }

    // Starts what the stream does in a step.
    void start() {
        for (int64_t turn = 0; turn < k_turns; ++turn) {
            f.device->post(*stream, *exchange, turn, h, ids, n, k_used, hidden);
            f.device->collect(*stream, *exchange, turn, table, ids, n, k_used, hidden,
                              out + turn * static_cast<int64_t>(n_outputs()));
            f.device->scale(*stream, h, n * hidden, 0.5F);
        }
    }
    // Does the host's part of a step. Returns the number of turns that it has answered.
    int64_t answer_all(const CancelToken* cancel = nullptr, int64_t n_turns = k_turns) {
        for (int64_t turn = 0; turn < n_turns; ++turn) {
            if (!exchange->wait(turn, cancel)) return turn;
            const Exchange::Turn with = exchange->turn();
            for (size_t slot = 0; slot < host_ids.size(); ++slot) {
                if (is_on_device(with.ids[slot])) continue;
                const float* row = with.h + slot / k_used * static_cast<size_t>(hidden);
                for (size_t i = 0; i < static_cast<size_t>(hidden); ++i)
                    with.out[slot * static_cast<size_t>(hidden) + i] =
                        answer_of(turn, row[i], with.ids[slot]);
            }
            exchange->answer(turn);
        }
        return n_turns;
    }
    // Returns the outputs of all turns after `n_answered` of them were answered.
    std::vector<float> expected(int64_t n_answered) const {
        std::vector<float> all(static_cast<size_t>(k_turns) * n_outputs(), k_before);
        std::vector<float> row = host_h;
        for (int64_t turn = 0; turn < n_answered; ++turn) {
            float* of_turn = all.data() + static_cast<size_t>(turn) * n_outputs();
            for (size_t i = 0; i < n_outputs(); ++i) {
                const size_t slot = i / static_cast<size_t>(hidden);
                const float x =
                    row[slot / k_used * static_cast<size_t>(hidden) + i % static_cast<size_t>(hidden)];
                if (!is_on_device(host_ids[slot])) of_turn[i] = answer_of(turn, x, host_ids[slot]);
            }
            for (float& x : row) x *= 0.5F;
        }
        return all;
    }
    std::vector<float> outputs() {
        f.device->synchronize(*stream);
        return f.get(out, static_cast<size_t>(k_turns) * n_outputs());
    }

    Fixture& f;
    int64_t n;
    int64_t hidden;
    backend::StepLimits limits;
    std::unique_ptr<backend::Scratch> stream;
    std::unique_ptr<Exchange> exchange;  // ends before the stream
    std::vector<int32_t> host_ids;
    std::vector<float> host_h;
    const ExpertPlace* table;
    const int32_t* ids;
    float* h;
    float* out;
};

}  // namespace

TEST_CASE("gpu exchange: twelve turns answered by another thread, of few rows and of many") {
    if (!has_devices(1)) return;
    for (const char* way : k_ways_of_exchange) {
        INFO("way '" << way << "'");
        const SetLaunchPaths paths(way);
        for (const Arithmetic arithmetic : {Arithmetic::fast, Arithmetic::exact}) {
            Fixture f(arithmetic);
            for (const int64_t n : {1, 5, 64, 65}) {
                for (const int64_t hidden :
                     {1028, 42}) {  // more than one block of threads takes; no whole pieces of 16 bytes
                    INFO(n << " rows of " << hidden << ", arithmetic " << static_cast<int>(arithmetic));
                    Turns turns(f, n, hidden);
                    turns.exchange->begin();
                    int64_t n_answered = 0;
                    std::thread host([&] { n_answered = turns.answer_all(); });
                    turns.start();
                    host.join();
                    CHECK(n_answered == k_turns);
                    CHECK(turns.outputs() == turns.expected(k_turns));
                }
            }
        }
    }
}

TEST_CASE("gpu exchange: a step that is repeated exchanges anew") {
    if (!has_devices(1)) return;
    for (const char* way : k_ways_of_exchange) {
        INFO("way '" << way << "'");
        const SetLaunchPaths paths(way);
        Fixture f(Arithmetic::fast);
        Turns turns(f, 2, 96);
        const KvLayout layout = {.n_layer = 1, .n_head_kv = 4, .head_dim = 128};
        std::vector<std::byte*> pages(1);
        const std::unique_ptr<backend::Memory> page =
            f.device->allocate(static_cast<uint64_t>(layout.page_bytes()), "a page");
        pages[0] = page->data();
        const backend::KvSequence sequence = {&layout, pages};
        const std::vector<backend::KvRow> rows = {{&sequence, 0}, {&sequence, 1}};
        const backend::StepBatch batch = {
            .ids = {}, .rows = rows, .n_head = 12, .n_head_kv = 4, .calls = &turns};
        const std::vector<float> h_before = turns.host_h;
        for (int step = 0; step < 5; ++step) {
            f.device->upload(*turns.stream, reinterpret_cast<std::byte*>(turns.h),
                             reinterpret_cast<const std::byte*>(h_before.data()),
                             h_before.size() * sizeof(float));
            f.device->synchronize(*turns.stream);
            turns.exchange->begin();
            int64_t n_answered = 0;
            // The host answers a repeated step on the thread that has started it.
            std::thread host;
            bool is_repeated = false;
            do {
                is_repeated = f.device->begin_step(*turns.stream, batch);
                if (is_repeated) break;
                if (!host.joinable()) host = std::thread([&] { n_answered = turns.answer_all(); });
                turns.start();
            } while (!f.device->end_step(*turns.stream));
            if (host.joinable()) {
                host.join();
            } else {
                n_answered = turns.answer_all();
            }
            CHECK(is_repeated == (step >= 2));
            CHECK(n_answered == k_turns);
            CHECK(turns.outputs() == turns.expected(k_turns));
        }
        CHECK(f.device->step_counts().repeated == 4);
    }
}

TEST_CASE("gpu exchange: once given up the stream comes to its end, and the next step is whole") {
    if (!has_devices(1)) return;
    for (const char* way : k_ways_of_exchange) {
        INFO("way '" << way << "'");
        const SetLaunchPaths paths(way);
        Fixture f(Arithmetic::fast);
        Turns turns(f, 3, 64);
        for (const int64_t n_before : {0, 1, 7}) {
            INFO(n_before << " turns answered");
            const std::vector<float> before(static_cast<size_t>(k_turns) * turns.n_outputs(),
                                            Turns::k_before);
            const auto set = [&](float* to, const std::vector<float>& values) {
                f.device->write(reinterpret_cast<std::byte*>(to),
                                reinterpret_cast<const std::byte*>(values.data()),
                                values.size() * sizeof(float));
            };
            set(turns.out, before);
            set(turns.h, turns.host_h);
            turns.exchange->begin();
            std::thread host([&] {
                turns.answer_all(nullptr, n_before);
                turns.exchange->wait(n_before, nullptr);  // the turns before have been collected
                turns.exchange->give_up();
            });
            turns.start();
            host.join();
            CHECK_FALSE(turns.exchange->wait(k_turns - 1, nullptr));
            CHECK(turns.outputs() == turns.expected(n_before));
            set(turns.h, turns.host_h);
            turns.exchange->begin();
            std::thread again([&] { turns.answer_all(); });
            turns.start();
            again.join();
            CHECK(turns.outputs() == turns.expected(k_turns));
        }
    }
}

TEST_CASE("gpu exchange: a device that waits in vain says so, and goes on without the answer") {
    if (!has_devices(1)) return;
    using cuda::fast::Flag;
    Fixture f(Arithmetic::fast);
    constexpr int64_t k_millisecond = 1'000'000;  // nanoseconds
    const std::unique_ptr<backend::Memory> host = f.device->allocate_staging(4 * sizeof(Flag), "flags");
    auto* flags = reinterpret_cast<Flag*>(host->data());
    uint32_t* seen = f.put(std::vector<uint32_t>(1, 77));
    const auto& stream = static_cast<const cuda::Stream&>(*f.stream);
    const auto await = [&](uint32_t flag, int64_t patience) {
        flags[0].value = flag;
        flags[1].value = cuda::fast::k_flag_clear;
        cuda::fast::await_host(stream.stream, &flags[0].value, &flags[1].value, patience, seen);
        const uint32_t result = f.get(seen, 1)[0];
        return std::pair(result, flags[1].value);
    };
    CHECK(await(cuda::fast::k_flag_clear, 5 * k_millisecond) ==
          std::pair(cuda::fast::k_flag_clear, cuda::fast::k_flag_set));
    CHECK(await(cuda::fast::k_flag_set, 0) == std::pair(cuda::fast::k_flag_set, cuda::fast::k_flag_clear));
    CHECK(await(cuda::fast::k_flag_given_up, 5 * k_millisecond) ==
          std::pair(cuda::fast::k_flag_given_up, cuda::fast::k_flag_clear));
}

TEST_CASE("gpu exchange: a step whose answer came too late fails, and the next one does not") {
    if (!has_devices(1)) return;
    for (const char* way : k_ways_of_exchange) {
        INFO("way '" << way << "'");
        const SetLaunchPaths paths(way);
        Fixture f(Arithmetic::fast);
        Turns turns(f, 1, 64);
        const auto& exchange = static_cast<const cuda::HostExchange&>(*turns.exchange);
        for (const bool is_late : {true, false}) {
            turns.exchange->begin();
            std::thread host([&] { turns.answer_all(); });
            turns.start();
            host.join();
            if (!is_late) {
                CHECK_NOTHROW(f.device->synchronize(*turns.stream));
                continue;
            }
            *exchange.late() = cuda::fast::k_flag_set;  // as a kernel does after 20 seconds
            expect_error(Status::internal,
                         "the host took longer than 20 s and 50 ms per row to compute its experts of a layer",
                         [&] { f.device->synchronize(*turns.stream); });
        }
    }
}

TEST_CASE("gpu exchange: a host that is cancelled while it waits gives up") {
    if (!has_devices(1)) return;
    for (const char* way : k_ways_of_exchange) {
        INFO("way '" << way << "'");
        const SetLaunchPaths paths(way);
        Fixture f(Arithmetic::fast);
        Turns turns(f, 1, 64);
        turns.exchange->begin();
        CancelToken cancel;
        std::thread canceller([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            cancel.trigger();
        });
        CHECK_FALSE(turns.exchange->wait(0, &cancel));  // nothing is posted
        canceller.join();
        turns.start();  // ends although nobody answers
        CHECK(turns.outputs() == turns.expected(0));
    }
}

}  // namespace minim::test
