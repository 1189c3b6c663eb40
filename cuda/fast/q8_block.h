// SPDX-License-Identifier: Apache-2.0
// An input row of packed weights, quantised.
#pragma once

#include <cstdint>

namespace minim::cuda::fast {

// 32 columns of a quantised input row, with codes and scale as in lib/cpu/q8_block.h. sum: of 16 codes each;
// scaled_sum = scale * sum. Three loads of 16 bytes.
struct Q8Block {
    int8_t code[32];
    float scale;
    float scaled_sum[2];
    int16_t sum[2];
};
static_assert(sizeof(Q8Block) == 48);

}  // namespace minim::cuda::fast
