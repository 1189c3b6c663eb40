// SPDX-License-Identifier: Apache-2.0
// Chooses experts from their scores. The CPU's and the GPU's route() share this code.
#pragma once

#include <cstdint>

#include "base/platform.h"

namespace minim::backend {

// A lower bound of the sum that gates are divided by: it is below the sums of real weights, and keeps the gates of a row
// with vanishing scores finite.
inline constexpr float k_smallest_gate_sum = 0x1p-14F;

// Chooses the n_used experts with the largest score + bias, sorted; ties go to the lower index. The experts are
// distinct and valid for any scores, NaN included. gates = score / sum of the chosen scores. `bias` may be null.
MINIM_HOST_DEVICE void choose_experts(const float* score, int64_t n_expert, const float* bias, int64_t n_used,
                                      int32_t* ids, float* gates) {
    const auto biased = [&](int64_t e) { return bias != nullptr ? score[e] + bias[e] : score[e]; };
    int64_t count = 0;
    for (int64_t e = 0; e < n_expert; ++e) {
        const float value = biased(e);
        if (count == n_used && !(value > biased(ids[count - 1]))) continue;
        int64_t place = count < n_used ? count++ : count - 1;
        for (; place > 0 && value > biased(ids[place - 1]); --place) ids[place] = ids[place - 1];
        ids[place] = static_cast<int32_t>(e);
    }
    float sum = 0.0F;
    for (int64_t s = 0; s < n_used; ++s) sum += score[ids[s]];
    if (sum < k_smallest_gate_sum) sum = k_smallest_gate_sum;
    for (int64_t s = 0; s < n_used; ++s) gates[s] = score[ids[s]] / sum;
}

}  // namespace minim::backend
