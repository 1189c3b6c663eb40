// An input row of packed weights, quantised.
#pragma once

#include <cstdint>

namespace minim::cpu {

// How much higher signed codes of weights are kept where a processor multiplies unsigned by signed bytes.
inline constexpr int k_unsigned_offset = 128;

// 32 columns of a quantised input row. Codes lie in -127 .. 127, and two neighbours, columns 2i and 2i + 1, add
// up to -128 .. 128 (generic/quantize.h). One layout serves every packed weight format. A scale for 256, as Q8_K has it, would
// spare the formats with blocks of 256 a multiplication, but costs too much accuracy: with it the median logits of a Q4_K model
// are 1.7 % off, with a scale for 32 they stay within 1.1 %.
//
// The sums are what products of offset codes and minima need. Each is kept in the form in which a kernel can take it to all
// lanes by a load, as multiplications are what bounds it.
struct Q8Block {
    int8_t code[32];
    float scale;
    float scaled_sum[2];      // scale * sum[i]
    float scaled_total;       // their sum
    int16_t sum[2];           // of 16 codes each
    int32_t unsigned_offset;  // -k_unsigned_offset * (sum[0] + sum[1])
};

}  // namespace minim::cpu
