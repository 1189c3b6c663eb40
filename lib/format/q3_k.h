// SPDX-License-Identifier: Apache-2.0
// Q3_K: 256 elements, 3-bit codes, 16 groups of 16 with a 6-bit scale each.
//
//     0  high    32 bytes: bit e/32 of byte e%32; if it is clear, the code is 4 less
//    32  codes   64 bytes: 32 bytes hold 128 elements, the lowest bits of each byte the first 32 of them
//    96  scales  12 bytes: bits 0-3 of scale g are nibble g/8 of byte g%8,
//                bits 4-5 are at bit 2*(g/4) of byte 8 + g%4
//   108  d       f16
//   W = d * (scale - 32) * (code - 4 * !high)
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/Q3_K.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

// Returns one of the 16 scales of a block, -32 … 31, from their 12 bytes.
MINIM_HOST_DEVICE int q3_k_scale(const uint8_t* scales, int g) {
    return nibble(scales[g & 7], g >> 3) + 16 * bit_field(scales[8 + (g & 3)], 2 * (g >> 2), 2) - 32;
}

struct Q3_K {
    static constexpr Format format = Format::q3_k;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 110;
    static constexpr int row_header_bytes = 0;
    static constexpr int high_at = 0;
    static constexpr int codes_at = 32;
    static constexpr int scales_at = 96;
    static constexpr int d_at = 108;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int g = 0; g < 16; ++g) {
            const float scale = d * static_cast<float>(q3_k_scale(block + scales_at, g));
            for (int e = 16 * g; e < 16 * g + 16; ++e) {
                const int code = code2_of_128(block + codes_at, e) + 4 * code1_of_256(block + high_at, e) - 4;
                out[e] = scale * static_cast<float>(code);
            }
        }
    }
};
static_assert(Q3_K::block_bytes == 32 + 64 + 12 + 2);

}  // namespace minim
