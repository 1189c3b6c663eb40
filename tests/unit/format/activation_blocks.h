// SPDX-License-Identifier: Apache-2.0
// Blocks of quantised activations as the golden files have them, and their encoders.
#pragma once

#include <cmath>
#include <cstdint>

#include "format/encode_block.h"

namespace minim {

// 32 elements: x = d * q, and s = d * sum of q, which takes the minimum of Q4_1 and Q5_1 out of the inner
// loop.
struct Q8_1Block {
    uint16_t d;  // f16
    uint16_t s;  // f16
    int8_t q[32];
};
static_assert(sizeof(Q8_1Block) == 36);
inline constexpr int k_q8_1_elems = 32;

// 256 elements: x = d * q, and the sums of each 16 codes, for minima and offsets.
struct Q8_KBlock {
    float d;
    int8_t q[256];
    int16_t sums[16];
};
static_assert(sizeof(Q8_KBlock) == 292);
inline constexpr int k_q8_k_elems = 256;

inline void encode_row_q8_1(const float* x, int64_t count, Q8_1Block* blocks) {
    for (int64_t b = 0; b < count / k_q8_1_elems; ++b) {
        Q8_1Block& block = blocks[b];
        const float d = quantise_q8(x + b * k_q8_1_elems, block.q);
        int sum = 0;
        for (const int8_t q : block.q) sum += q;
        block.d = float_to_f16(d);
        block.s = float_to_f16(d * static_cast<float>(sum));
    }
}

inline void encode_row_q8_k(const float* x, int64_t count, Q8_KBlock* blocks) {
    for (int64_t b = 0; b < count / k_q8_k_elems; ++b) {
        Q8_KBlock& block = blocks[b];
        const float* from = x + b * k_q8_k_elems;
        // The peak becomes -127, so d has the opposite sign of the peak.
        const float peak = signed_peak(from, k_q8_k_elems);
        const float inverse = peak != 0.0F ? -127.0F / peak : 0.0F;
        for (int i = 0; i < k_q8_k_elems; ++i) {
            block.q[i] = static_cast<int8_t>(truncate_clamped(std::nearbyint(from[i] * inverse), -127, 127));
        }
        for (int g = 0; g < 16; ++g) {
            int sum = 0;
            for (int i = 0; i < 16; ++i) sum += block.q[16 * g + i];
            block.sums[g] = static_cast<int16_t>(sum);
        }
        block.d = reciprocal_or_zero(inverse);
    }
}

}  // namespace minim
