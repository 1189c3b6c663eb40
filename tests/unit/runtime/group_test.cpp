// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "reference/reference_backend.h"
#include "runtime/host_group.h"
#include "runtime/thread_transport.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::runtime;
using namespace minim::test;

namespace {

constexpr GroupLimits k_limits = {.n_sum = 200'000, .n_slots = 64, .hidden = 96, .n_gather = 10'000};

using Rank = std::function<void(HostGroup& group, backend::Scratch& scratch)>;

// Runs a function on a thread for each rank. A rank that throws abandons the group, as ranks of a model do. Returns what each rank
// has thrown, or nothing.
std::vector<std::optional<Error>> run_ranks(int32_t n, const Rank& rank) {
    const auto backend = reference::make_reference_backend();
    auto ends = connect_threads(n);
    std::vector<std::optional<Error>> errors(n);
    std::vector<std::thread> threads;
    for (int32_t r = 0; r < n; ++r)
        threads.emplace_back([&, r] {
            HostGroup group(*backend, *ends[r], k_limits);
            const auto scratch = backend->reserve({});
            try {
                rank(group, *scratch);
            } catch (const Error& error) {
                errors[r].emplace(error);
                group.abandon(error);
            }
        });
    for (std::thread& thread : threads) thread.join();
    return errors;
}

void expect_no_errors(const std::vector<std::optional<Error>>& errors) {
    for (const std::optional<Error>& error : errors)
        if (error) FAIL_CHECK(error->what());
}

// The numbers of a rank: sums of them depend on the order of the additions.
std::vector<float> numbers(int32_t rank, int64_t count, uint32_t seed) {
    std::mt19937 random(seed * 1000 + static_cast<uint32_t>(rank));
    std::vector<float> values(count);
    for (float& value : values)
        value =
            std::ldexp(static_cast<float>(random() % 65536) - 32768.0F, static_cast<int>(random() % 24) - 12);
    return values;
}

bool are_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("a sum has the same bits on all ranks: those of additions in rank order") {
    for (const int32_t n : {1, 2, 3, 5, 8}) {
        for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{37}, k_max_floats_to_all,
                                    k_max_floats_to_all + 1, int64_t{131'075}}) {
            std::vector<float> expected = numbers(0, count, 1);
            for (int32_t r = 1; r < n; ++r) {
                const std::vector<float> term = numbers(r, count, 1);
                for (int64_t i = 0; i < count; ++i) expected[i] += term[i];
            }
            std::vector<std::vector<float>> results(n);
            expect_no_errors(run_ranks(n, [&](HostGroup& group, backend::Scratch& scratch) {
                std::vector<float> data = numbers(group.rank(), count, 1);
                group.sum(scratch, data.data(), count);
                results[group.rank()] = data;
            }));
            for (const std::vector<float>& result : results) CHECK(are_same_bits(result, expected));
        }
    }
}

TEST_CASE("many exchanges of random sizes follow one another") {
    constexpr int32_t k_ranks = 4;
    std::atomic<int64_t> n_wrong = 0;
    expect_no_errors(run_ranks(k_ranks, [&](HostGroup& group, backend::Scratch& scratch) {
        std::mt19937 random(7);
        for (int i = 0; i < 300; ++i) {
            const auto count = static_cast<int64_t>(1 + random() % (i % 20 == 0 ? 100'000 : 500));
            std::vector<float> data(count, static_cast<float>(group.rank() + i));
            group.sum(scratch, data.data(), count);
            for (const float value : data)
                if (value != static_cast<float>(k_ranks * i + 6)) ++n_wrong;
        }
    }));
    CHECK(n_wrong == 0);
}

TEST_CASE("each slot comes from the rank that has its expert") {
    constexpr int64_t k_slots = 37;
    constexpr int64_t k_hidden = 96;
    for (const int32_t n : {1, 2, 3, 4}) {
        std::vector<int32_t> ids(k_slots);
        for (int64_t i = 0; i < k_slots; ++i) ids[i] = static_cast<int32_t>((i * i + 3 * i) % 16);
        std::vector<std::vector<float>> results(n);
        expect_no_errors(run_ranks(n, [&](HostGroup& group, backend::Scratch& scratch) {
            std::vector<float> out(k_slots * k_hidden, -1.0F);
            for (int64_t i = 0; i < k_slots; ++i)
                if (ids[i] % n == group.rank())
                    std::fill_n(out.begin() + i * k_hidden, k_hidden,
                                static_cast<float>(100 * i + group.rank()));
            group.share_slots(scratch, ids.data(), k_slots, k_hidden, out.data());
            results[group.rank()] = out;
        }));
        for (const std::vector<float>& out : results)
            for (int64_t i = 0; i < k_slots * k_hidden; ++i) {
                const int64_t slot = i / k_hidden;
                REQUIRE(out[i] == static_cast<float>(100 * slot + ids[slot] % n));
            }
    }
}

TEST_CASE("rank 0 gets the parts of rows side by side") {
    constexpr int32_t k_ranks = 3;
    std::vector<float> whole(2 * k_ranks * 5, -1.0F);
    expect_no_errors(run_ranks(k_ranks, [&](HostGroup& group, backend::Scratch& scratch) {
        std::vector<float> part(2 * 5);
        for (size_t i = 0; i < part.size(); ++i)
            part[i] = static_cast<float>(100 * group.rank()) + static_cast<float>(i);
        group.gather_rows(scratch, part.data(), 2, 5, group.rank() == 0 ? whole.data() : nullptr);
    }));
    for (int64_t row = 0; row < 2; ++row)
        for (int64_t r = 0; r < k_ranks; ++r)
            for (int64_t i = 0; i < 5; ++i)
                CHECK(whole[(row * k_ranks + r) * 5 + i] == static_cast<float>(100 * r + row * 5 + i));
}

TEST_CASE("the token of rank 0 cancels all ranks, and other tokens none") {
    CancelToken triggered;
    triggered.trigger();
    const CancelToken idle;
    for (const int32_t of : {0, 1}) {
        const auto errors = run_ranks(3, [&](HostGroup& group, backend::Scratch&) {
            group.go_on(group.rank() == of ? &triggered : &idle);
        });
        for (const std::optional<Error>& error : errors) {
            REQUIRE(error.has_value() == (of == 0));
            if (error) CHECK(error->status() == Status::cancelled);
        }
    }
}

TEST_CASE("a rank that fails ends the waits of the others with its error") {
    for (const int32_t failing : {0, 1, 3}) {
        const auto errors = run_ranks(4, [&](HostGroup& group, backend::Scratch& scratch) {
            std::vector<float> data(50'000, 1.0F);
            for (int i = 0; i < 20; ++i) {
                if (i == 11 && group.rank() == failing) fail(Status::device_lost, "sim:{}: lost", failing);
                group.sum(scratch, data.data(), i % 2 == 0 ? 10 : std::ssize(data));
            }
        });
        for (const std::optional<Error>& error : errors) {
            REQUIRE(error);
            CHECK(error->status() == Status::device_lost);
            CHECK(error->what() == "sim:" + std::to_string(failing) + ": lost");
        }
    }
}

TEST_CASE("messages of different sizes than the receiver's are an error") {
    auto ends = connect_threads(2);
    const std::vector<std::byte> sent(10);
    std::vector<std::byte> received(11);
    ends[0]->send(1, sent);
    const Transport::Ticket ticket = ends[1]->receive(0, received);
    expect_error(Status::internal, "rank 0 has sent 10 bytes, and rank 1 waits for 11", [&] {
        ends[1]->wait({&ticket, 1});
    });
}
