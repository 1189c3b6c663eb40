// SPDX-License-Identifier: Apache-2.0
// An input row for float weights on tensor cores: F16 with a scale for every 128 columns, for numbers that are too
// large or too small for F16; or, for BF16 weights, BF16 with a scale of 1.
#pragma once

#include <cstdint>

namespace minim::cuda::fast {

// 128 columns: x = scale * half, and the scale is a power of two. Seventeen loads of 16 bytes.
struct HalfBlock {
    uint16_t half[128];
    float scale;
    float unused[3];
};
static_assert(sizeof(HalfBlock) == 272);

}  // namespace minim::cuda::fast
