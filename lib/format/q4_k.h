// SPDX-License-Identifier: Apache-2.0
// Q4_K: 256 elements, 4-bit codes, 8 groups of 32 with a 6-bit scale and a 6-bit minimum each.
//
//    0  d       f16
//    2  dmin    f16
//    4  scales  12 bytes, packed as drawn below
//   16  codes   128 bytes: 32 bytes hold 64 elements, low nibbles the first 32 of them
//   W = d * scale * code - dmin * minimum
//
//   byte of scales      bits 0-5 (0-3 for 8-11)       bits 6-7 (4-7 for 8-11)
//   j     (j = 0 … 3)   scale j                       bits 4-5 of scale j + 4
//   4 + j               minimum j                     bits 4-5 of minimum j + 4
//   8 + j               bits 0-3 of scale j + 4       bits 0-3 of minimum j + 4
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/Q4_K.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

struct ScaleAndMinimum {
    int scale;
    int minimum;
};

// Returns scale and minimum of group j (0 … 7), from the 12 scale bytes of Q4_K and Q5_K.
MINIM_HOST_DEVICE ScaleAndMinimum q4_k_scale(const uint8_t* scales, int j) {
    if (j < 4) return {scales[j] & 63, scales[j + 4] & 63};
    return {(scales[j + 4] & 15) + 16 * (scales[j - 4] >> 6), (scales[j + 4] >> 4) + 16 * (scales[j] >> 6)};
}

struct Q4_K {
    static constexpr Format format = Format::q4_k;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 144;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int dmin_at = 2;
    static constexpr int scales_at = 4;
    static constexpr int codes_at = 16;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        const float dmin = load_f16(block + dmin_at);
        for (int j = 0; j < 8; ++j) {
            const ScaleAndMinimum group = q4_k_scale(block + scales_at, j);
            const float scale = d * static_cast<float>(group.scale);
            const float minimum = dmin * static_cast<float>(group.minimum);
            for (int e = 32 * j; e < 32 * j + 32; ++e) {
                out[e] = scale * static_cast<float>(code4_of_64(block + codes_at, e)) - minimum;
            }
        }
    }
};
static_assert(Q4_K::block_bytes == 2 + 2 + 12 + 128);

}  // namespace minim
