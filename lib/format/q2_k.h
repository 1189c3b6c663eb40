// SPDX-License-Identifier: Apache-2.0
// Q2_K: 256 elements, 2-bit codes, 16 groups of 16 with a 4-bit scale and a 4-bit minimum each.
//
//    0  scales  16 bytes: group g has its scale in the low nibble of byte g, its minimum in the high one
//   16  codes   64 bytes: 32 bytes hold 128 elements, the lowest bits of each byte the first 32 of them
//   80  d       f16
//   82  dmin    f16
//   W = d * scale * code - dmin * minimum
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/Q2_K.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

struct Q2_K {
    static constexpr Format format = Format::q2_k;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 84;
    static constexpr int row_header_bytes = 0;
    static constexpr int scales_at = 0;
    static constexpr int codes_at = 16;
    static constexpr int d_at = 80;
    static constexpr int dmin_at = 82;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        const float dmin = load_f16(block + dmin_at);
        for (int g = 0; g < 16; ++g) {
            const float scale = d * static_cast<float>(nibble(block[scales_at + g], 0));
            const float minimum = dmin * static_cast<float>(nibble(block[scales_at + g], 1));
            for (int e = 16 * g; e < 16 * g + 16; ++e) {
                out[e] = scale * static_cast<float>(code2_of_128(block + codes_at, e)) - minimum;
            }
        }
    }
};
static_assert(Q2_K::block_bytes == 16 + 64 + 2 + 2);

}  // namespace minim
