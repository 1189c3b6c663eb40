// SPDX-License-Identifier: Apache-2.0
// The formats that activations are quantised to before integer dot products, in memory only, never in files. 32-element rows
// use Q8_0 (q8_0.h) or Q8_1, 256-element rows Q8_K. Written by the encoders of encode.h, pinned by
// tests/unit/format/encode_test.cpp with tests/data/format/encode_ref.bin.
#pragma once

#include <cstdint>

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

}  // namespace minim
