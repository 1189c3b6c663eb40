// SPDX-License-Identifier: Apache-2.0
#include "sampling/softmax.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace minim::sampling {
namespace {

constexpr size_t k_lanes = 8;

// Small enough for the first-level cache, large enough for its loops to run in vector registers.
constexpr size_t k_block = 256;

}  // namespace

// Each step is a loop of its own without a branch, so that compilers turn it into vector code.
double Softmax::total(std::span<const float> logits) const noexcept {
    if (std::isinf(highest)) {
        return static_cast<double>(std::count(logits.begin(), logits.end(), highest));
    }
    std::array<double, k_block> weights;
    std::array<double, k_lanes> sums{};
    for (size_t begin = 0; begin < logits.size(); begin += k_block) {
        const size_t n = std::min(k_block, logits.size() - begin);
        const float* block = logits.data() + begin;
        for (size_t i = 0; i < n; ++i) {
            const double distance = static_cast<double>(block[i]) - static_cast<double>(highest);
            weights[i] = std::max(k_exp_lowest, distance * inverse_temperature);
        }
        for (size_t i = 0; i < n; ++i) weights[i] = portable_exp_in_range(weights[i]);
        std::fill(weights.begin() + static_cast<std::ptrdiff_t>(n), weights.end(), 0.0);
        for (size_t i = 0; i < k_block; i += k_lanes) {
            for (size_t lane = 0; lane < k_lanes; ++lane) sums[lane] += weights[i + lane];
        }
    }
    double total = 0.0;
    for (const double sum : sums) total += sum;
    return total;
}

}  // namespace minim::sampling
