// SPDX-License-Identifier: Apache-2.0
// IQ4_XS: 256 elements of IQ4_NL codes, 8 groups of 32 with a 6-bit scale each.
//
//   0  d       f16
//   2  high    u16: bits 4-5 of scale j at bits 2j
//   4  low     4 bytes: bits 0-3 of scale j are nibble j%2 of byte j/2
//   8  codes   128 bytes: 16 bytes hold 32 elements, low nibbles the first 16 of them
//   W = d * (scale - 32) * iq4nl[code]
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ4_XS.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

struct IQ4_XS {
    static constexpr Format format = Format::iq4_xs;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 136;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int high_at = 2;
    static constexpr int low_at = 4;
    static constexpr int codes_at = 8;

    // Returns the scale of group j, -32 … 31.
    MINIM_HOST_DEVICE static int group_scale(const uint8_t* block, int j) {
        return nibble(block[low_at + (j >> 1)], j & 1) + 16 * bit_field(load_u16(block + high_at), 2 * j, 2) -
               32;
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int j = 0; j < 8; ++j) {
            const float scale = d * static_cast<float>(group_scale(block, j));
            for (int e = 32 * j; e < 32 * j + 32; ++e) {
                out[e] = scale * static_cast<float>(iq4nl_values()[code4_of_32(block + codes_at, e)]);
            }
        }
    }
};
static_assert(IQ4_XS::block_bytes == 2 + 2 + 4 + 128);

}  // namespace minim
