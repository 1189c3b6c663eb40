// SPDX-License-Identifier: Apache-2.0
// The shares of a layer that ranks compute: on a simulated device they have the bits of the CPU.
#include "support/rank_operations.h"

#include <cmath>
#include <cstring>

#include "sim/devices.h"
#include "support/catch.h"

namespace minim::test {
namespace {

using backend::ExpertStack;
using backend::ExpertWeights;

constexpr int64_t k_experts = 6;
constexpr int64_t k_hidden = 48;
constexpr int64_t k_ff = 32;

bool has_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The experts of a layer in F32, in the device's memory.
ExpertWeights put_float_experts(RankDevice& on) {
    const auto stack = [&](uint32_t seed, int64_t rows, int64_t cols) {
        ExpertStack s;
        for (int64_t e = 0; e < k_experts; ++e) {
            const std::vector<float> matrix =
                random_floats(seed + static_cast<uint32_t>(e), rows * cols, 1.0F);
            s.expert.push_back(reinterpret_cast<const std::byte*>(on.put(matrix)));
            s.scale.push_back(1.0F + 0.25F * static_cast<float>(e));
        }
        s.format = Format::f32;
        s.rows = rows;
        s.cols = cols;
        s.row_bytes = cols * static_cast<int64_t>(sizeof(float));
        return s;
    };
    return {stack(20, k_ff, k_hidden), stack(40, k_ff, k_hidden), stack(60, k_hidden, k_ff)};
}

}  // namespace

TEST_CASE("ranks of simulated devices: divided heads have the bits of the CPU") {
    const sim::SimBackend device(0, {});
    const auto cpu = cpu_backend();
    const HeadRows rows(67, 8, 4, 32, Format::f16);
    for (const int64_t n_ranks : {0, 1, 2, 4}) {
        INFO(n_ranks << " ranks");
        CHECK(has_same_bits(attend_on_ranks(device, rows, n_ranks, 20),
                            attend_on_ranks(*cpu, rows, n_ranks, 20)));
    }
}

TEST_CASE("ranks of simulated devices: divided experts have the bits of the CPU") {
    const sim::SimBackend device(0, {});
    const auto cpu = cpu_backend();
    for (const int64_t n : {1, 9}) {
        const ExpertRows rows(n, 3, k_experts, k_hidden);
        const backend::StepLimits limits = {
            .n_rows = n, .hidden = k_hidden, .n_expert = k_experts, .n_expert_used = 3, .expert_ff = k_ff};
        RankDevice on_sim(device, limits);
        RankDevice on_cpu(*cpu, limits);
        const ExpertWeights of_sim = put_float_experts(on_sim);
        const ExpertWeights of_cpu = put_float_experts(on_cpu);
        for (const int64_t n_groups : {1, 2, 3}) {
            INFO(n << " rows, " << n_groups << " groups");
            CHECK(has_same_bits(experts_on_ranks(on_sim, of_sim, rows, n_groups, n),
                                experts_on_ranks(on_cpu, of_cpu, rows, n_groups, n)));
        }
        const std::vector<float> nothing(rows.before.size(), NAN);
        const auto none = [](int64_t) { return false; };
        CHECK(has_same_bits(experts_on_rank(on_sim, of_sim, rows, none, rows.before, true, n), rows.before));
        CHECK(has_same_bits(experts_on_rank(on_sim, of_sim, rows, none, nothing, false, n),
                            std::vector<float>(nothing.size())));
    }
}

}  // namespace minim::test
