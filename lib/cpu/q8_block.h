// SPDX-License-Identifier: Apache-2.0
// The quantised form of input rows that are multiplied with packed weights.
#pragma once

#include <cstdint>

namespace minim::cpu {

// The number that is added to signed weight codes on CPUs that multiply unsigned by signed bytes.
inline constexpr int k_unsigned_offset = 128;

// 32 columns of a quantised input row. Codes are in -127 .. 127, and two neighbours, columns 2i and 2i + 1, add up to
// -128 .. 128 (generic/quantize.h). One layout serves every packed weight format. One scale for 256 columns, as in Q8_K, would
// save the formats with blocks of 256 a multiplication, but costs too much accuracy: the median error of the logits of a Q4_K
// model is 1.7 % with it, and 1.1 % with a scale for 32.
//
// The sums are needed for products of offset codes and of minima. Each is stored in the form that a kernel can broadcast with a
// load, because the kernels are bound by multiplications.
struct Q8Block {
    int8_t code[32];
    float scale;
    float scaled_sum[2];      // scale * sum[i]
    float scaled_total;       // scaled_sum[0] + scaled_sum[1]
    int16_t sum[2];           // of 16 codes each
    int32_t unsigned_offset;  // -k_unsigned_offset * (sum[0] + sum[1])
};

}  // namespace minim::cpu
