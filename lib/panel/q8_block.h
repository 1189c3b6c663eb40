// An input row of packed weights, quantised.
#pragma once

#include <cstdint>

namespace minim::panel {

// 32 columns of a quantised input row. Codes lie in -127 .. 127, and two neighbours, columns 2i and 2i + 1, add
// up to -128 .. 128 (cpu/generic/quantize.h); sum and scaled_sum = scale * sum are of 16 codes each. One layout
// serves every packed weight format. A scale for 256, as Q8_K has it, would spare the formats with blocks of 256
// a multiplication, but costs too much accuracy: with it the median logits of a Q4_K model are 1.7 % off, with a
// scale for 32 they stay within 1.1 %.
struct Q8Block {
    int8_t code[32];
    float scale;
    float scaled_sum[2];
    int16_t sum[2];
};

}  // namespace minim::panel
