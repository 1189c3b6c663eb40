// SPDX-License-Identifier: Apache-2.0
// Sums between connected devices: by NCCL, or its stand-in, and by the kernel; several ranks have one GPU.
#include "gpu/linked_ranks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "gpu/nccl_of_tests.h"
#include "gpu/support.h"
#include "ranks/self_test.h"
#include "support/catch.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using Floats = std::vector<float>;

// The numbers of a rank: sums of them depend on the order of the additions.
Floats numbers_of(int32_t rank, int64_t count) {
    std::mt19937 random(static_cast<uint32_t>(count * 16 + rank));
    Floats values(count);
    for (float& value : values)
        value =
            std::ldexp(static_cast<float>(random() % 65536) - 32768.0F, static_cast<int>(random() % 24) - 12);
    return values;
}

Floats sum_in_rank_order(int32_t n, int64_t count) {
    Floats total = numbers_of(0, count);
    for (int32_t r = 1; r < n; ++r) {
        const Floats term = numbers_of(r, count);
        for (int64_t i = 0; i < count; ++i) total[i] += term[i];
    }
    return total;
}

bool have_same_bits(const Floats& a, const Floats& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool are_near(const Floats& a, const Floats& b) {
    float largest = 0;
    float difference = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::abs(b[i]));
        difference = std::max(difference, std::abs(a[i] - b[i]));
    }
    return difference <= largest * 1e-5F;
}

void expect_no_errors(const LinkedEnd& end) {
    for (const std::optional<Error>& error : end.errors)
        if (error) FAIL_CHECK(error->what());
}

constexpr int64_t k_counts[] = {1, 2, 3, 1024, 1027, 3072, 16384, 16385, 100'003};
constexpr size_t k_ways = 2;  // NCCL, kernel

// Sums of all counts, [way][count].
using Sums = std::vector<std::vector<Floats>>;

void check_sums(int32_t n, Arithmetic arithmetic) {
    std::vector<Sums> sums(n, Sums(k_ways));
    const LinkedEnd end = run_linked(n, {.arithmetic = arithmetic}, [&](LinkedRank& rank) {
        if (rank.link.ways().size() != k_ways) fail_internal("{} ways", rank.link.ways().size());
        for (size_t way = 0; way < k_ways; ++way)
            for (const int64_t count : k_counts)
                sums[rank.rank()][way].push_back(rank.sum(numbers_of(rank.rank(), count), way));
    });
    expect_no_errors(end);
    if (std::ranges::any_of(end.errors, [](const auto& error) { return error.has_value(); })) return;
    for (size_t way = 0; way < k_ways; ++way) {
        for (size_t i = 0; i < std::size(k_counts); ++i) {
            INFO(n << " ranks, way " << way << ", " << k_counts[i] << " floats");
            const Floats expected = sum_in_rank_order(n, k_counts[i]);
            for (int32_t r = 0; r < n; ++r) CHECK(have_same_bits(sums[r][way][i], sums[0][way][i]));
            CHECK(are_near(sums[0][way][i], expected));
            const bool is_kernel = way == 1 && k_counts[i] <= 16384;
            if (is_kernel || arithmetic == Arithmetic::deterministic)
                CHECK(have_same_bits(sums[0][way][i], expected));
        }
    }
}

}  // namespace

TEST_CASE(
    "gpu links: sums have the same bits on all ranks, and in deterministic arithmetic those of additions in "
    "rank order") {
    if (!has_devices(1) || !prepare_nccl(4)) return;
    for (const int32_t n : {2, 4})
        for (const Arithmetic arithmetic : {Arithmetic::fast, Arithmetic::deterministic})
            check_sums(n, arithmetic);
}

TEST_CASE("gpu links: parts of rows are gathered on rank 0") {
    if (!has_devices(1) || !prepare_nccl(4)) return;
    constexpr int32_t k_ranks = 4;
    constexpr int64_t k_rows = 5;
    constexpr int64_t k_width = 301;
    Floats whole(k_rows * k_ranks * k_width);
    expect_no_errors(run_linked(k_ranks, {}, [&](LinkedRank& rank) {
        const auto part = rank.put(numbers_of(rank.rank(), k_rows * k_width));
        const auto memory = rank.put(Floats(whole.size()));
        auto* const place = reinterpret_cast<float*>(memory->data());
        rank.group.gather_rows(rank.scratch, reinterpret_cast<const float*>(part->data()), k_rows, k_width,
                               place);
        rank.device.synchronize(rank.scratch);
        if (rank.rank() == 0) rank.get(whole, place);
    }));
    for (int32_t r = 0; r < k_ranks; ++r) {
        const Floats part = numbers_of(r, k_rows * k_width);
        for (int64_t row = 0; row < k_rows; ++row) {
            const auto* const from = whole.data() + (row * k_ranks + r) * k_width;
            CHECK(have_same_bits(Floats(from, from + k_width),
                                 Floats(part.begin() + row * k_width, part.begin() + (row + 1) * k_width)));
        }
    }
}

TEST_CASE("gpu links: 10,000 sums of the kernel follow each other") {
    if (!has_devices(1)) return;
    ::setenv("MINIM_NCCL_LIBRARY", "none", 1);  // it may refuse several ranks of one GPU
    constexpr int64_t k_count = 6;
    constexpr int k_sums = 10'000;
    for (const int32_t n : {2, 4}) {
        std::vector<int64_t> wrong(n);
        expect_no_errors(run_linked(n, {}, [&](LinkedRank& rank) {
            rank.link.use_way(1);
            const auto memory = rank.put(Floats(k_count, 1.0F));
            auto* const data = reinterpret_cast<float*>(memory->data());
            Floats got(k_count);
            // Sums of sums grow by the number of ranks each: set back before they are no longer exact.
            const int a_while = n == 2 ? 20 : 10;
            for (int i = 0; i < k_sums; i += a_while) {
                rank.device.write(memory->data(),
                                  reinterpret_cast<const std::byte*>(Floats(k_count, 1.0F).data()),
                                  memory->size());
                for (int k = 0; k < a_while; ++k) rank.group.sum(rank.scratch, data, k_count);
                rank.get(got, data);
                const auto expected = static_cast<float>(std::pow(n, a_while));
                wrong[rank.rank()] += std::ranges::count_if(got, [&](float x) { return x != expected; });
            }
        }));
        for (const int64_t count : wrong) CHECK(count == 0);
    }
    ::unsetenv("MINIM_NCCL_LIBRARY");
}

TEST_CASE("gpu links: the self-test measures both ways, and all ranks take the same one") {
    if (!has_devices(1) || !prepare_nccl(2)) return;
    constexpr int32_t k_ranks = 2;
    std::vector<ranks::Ways> ways(k_ranks);
    expect_no_errors(run_linked(k_ranks, {}, [&](LinkedRank& rank) {
        ways[rank.rank()] = ranks::choose_way(rank.device, rank.scratch, rank.group, rank.link, rank.channel);
    }));
    REQUIRE(ways[0].all.size() == k_ways);
    CHECK(ways[0].chosen == ways[1].chosen);
    for (const ranks::WayTimes& way : ways[0].all)
        for (const ranks::SumTime& time : way.times)
            std::printf("sums over %d ranks by %s: %lld bytes in %.1f us\n", k_ranks,
                        std::string(way.name).c_str(), static_cast<long long>(time.n_bytes),
                        time.seconds * 1e6);
}

TEST_CASE("gpu links: a rank that fails ends the sums of the others with its error") {
    if (!has_devices(1) || !prepare_nccl(4)) return;
    for (size_t way = 0; way < k_ways; ++way) {
        for (const int64_t count : {6, 100'000}) {
            INFO("way " << way << ", " << count << " floats");
            const LinkedEnd end = run_linked(4, {}, [&](LinkedRank& rank) {
                for (int i = 0; i < 3; ++i) rank.sum(numbers_of(rank.rank(), count), way);
                if (rank.rank() == 2) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(50));
                    fail(Status::out_of_device_memory, "rank 2: no memory");
                }
                rank.sum(numbers_of(rank.rank(), count), way);
            });
            for (const auto& error : end.errors) {
                REQUIRE(error.has_value());
                CHECK(error->status() == Status::out_of_device_memory);
                CHECK(std::string(error->what()) == "rank 2: no memory");
            }
        }
    }
}

TEST_CASE("gpu links: a rank that stands still ends the sums of the others after the time limit") {
    if (!has_devices(1) || !prepare_nccl(2)) return;
    const LinkedEnd end = run_linked(2, {.timeout = std::chrono::milliseconds(200)}, [&](LinkedRank& rank) {
        rank.sum(numbers_of(rank.rank(), 100'000), 0);
        if (rank.rank() == 0) rank.sum(numbers_of(0, 100'000), 0);
    });
    REQUIRE(end.errors[0].has_value());
    CHECK(end.errors[0]->status() == Status::peer_lost);
    CHECK(std::string(end.errors[0]->what()).find("has not taken part") != std::string::npos);
    CHECK_FALSE(end.errors[1].has_value());
}

}  // namespace minim::test
