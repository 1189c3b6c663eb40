// SPDX-License-Identifier: Apache-2.0
// IQ2_KL (ik): 256 elements as 128 pairs, a 5-bit code a pair, 8 groups of 32 with a 6-bit scale each.
//
//   row header: d f16
//    0  high    u16: bits 4-5 of scale j at bits 2j
//    2  low     4 bytes: bits 0-3 of scale j are nibble j/4 of byte j%4
//    6  codes   64 bytes: 16 bytes hold the pairs of 64 elements, low nibbles the first 16 pairs
//   70  fifth   16 bytes: bit j of byte p is bit 4 of the code of pair p of group j
//   W = d * (scale - 32) * iq2kl[code][e%2]
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ2_KL.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

struct IQ2_KL {
    static constexpr Format format = Format::iq2_kl;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 86;
    static constexpr int row_header_bytes = 2;
    static constexpr int high_at = 0;
    static constexpr int low_at = 2;
    static constexpr int codes_at = 6;
    static constexpr int fifth_at = 70;

    // Returns the scale of group j, -32 … 31.
    MINIM_HOST_DEVICE static int group_scale(const uint8_t* block, int j) {
        return nibble(block[low_at + (j & 3)], j >> 2) + 16 * bit_field(load_u16(block + high_at), 2 * j, 2) -
               32;
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float row_scale, float* out) {
        for (int j = 0; j < 8; ++j) {
            const float scale = row_scale * static_cast<float>(group_scale(block, j));
            const uint8_t* codes = block + codes_at + 16 * (j >> 1);
            for (int p = 0; p < 16; ++p) {
                const int code = nibble(codes[p], j & 1) + 16 * bit_field(block[fifth_at + p], j, 1);
                out[32 * j + 2 * p] = scale * static_cast<float>(iq2kl_values()[2 * code]);
                out[32 * j + 2 * p + 1] = scale * static_cast<float>(iq2kl_values()[2 * code + 1]);
            }
        }
    }
};
static_assert(IQ2_KL::block_bytes == 2 + 4 + 64 + 16);

}  // namespace minim
