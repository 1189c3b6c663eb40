// SPDX-License-Identifier: Apache-2.0
// IQ2_K and IQ2_KS (ik): 256 elements, 2-bit codes into a table of 4 values or its shifted twin.
//
//   IQ2_K    0  d       f16
//            2  extra   u16: bit g set: elements 16g … 16g+15 use the shifted values
//            4  scales  8 bytes: nibble g%2 of byte g/2 scales elements 16g … 16g+15
//           12  codes   64 bytes: 32 bytes hold 128 elements, the lowest bits of each byte the first 32 of them
//   W = d * (scale - 8) * iq2k[code + 4 * shifted]
//
//   IQ2_KS   row header: d f16
//            0  extra   u16: bit j set: elements 32j … 32j+31 use the shifted values;
//                     bit 8 + j is bit 4 of scale j
//            2  scales  4 bytes: bits 0-3 of scale j are nibble j%2 of byte j/2
//            6  codes   64 bytes as above
//   W = d * (scale - 16) * iq2k[code + 4 * shifted]
//
// The roles of the two halves of extra are the reverse of those in IQ3_KS, and so is the pairing of the scale
// nibbles.
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ2_K.bin, IQ2_KS.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

struct IQ2_K {
    static constexpr Format format = Format::iq2_k;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 76;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int extra_at = 2;
    static constexpr int scales_at = 4;
    static constexpr int codes_at = 12;

    // Returns the scale of elements 16g … 16g+15, -8 … 7.
    MINIM_HOST_DEVICE static int group_scale(const uint8_t* block, int g) {
        return nibble(block[scales_at + (g >> 1)], g & 1) - 8;
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        const uint32_t extra = load_u16(block + extra_at);
        for (int g = 0; g < 16; ++g) {
            const float scale = d * static_cast<float>(group_scale(block, g));
            const int8_t* values = iq2k_values() + 4 * bit_field(extra, g, 1);
            for (int e = 16 * g; e < 16 * g + 16; ++e) {
                out[e] = scale * static_cast<float>(values[code2_of_128(block + codes_at, e)]);
            }
        }
    }
};
static_assert(IQ2_K::block_bytes == 2 + 2 + 8 + 64);

struct IQ2_KS {
    static constexpr Format format = Format::iq2_ks;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 70;
    static constexpr int row_header_bytes = 2;
    static constexpr int extra_at = 0;
    static constexpr int scales_at = 2;
    static constexpr int codes_at = 6;

    // Returns the scale of elements 32j … 32j+31, -16 … 15.
    MINIM_HOST_DEVICE static int group_scale(const uint8_t* block, int j) {
        const uint32_t extra = load_u16(block + extra_at);
        return nibble(block[scales_at + (j >> 1)], j & 1) + 16 * bit_field(extra, 8 + j, 1) - 16;
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float row_scale, float* out) {
        const uint32_t extra = load_u16(block + extra_at);
        for (int j = 0; j < 8; ++j) {
            const float scale = row_scale * static_cast<float>(group_scale(block, j));
            const int8_t* values = iq2k_values() + 4 * bit_field(extra, j, 1);
            for (int e = 32 * j; e < 32 * j + 32; ++e) {
                out[e] = scale * static_cast<float>(values[code2_of_128(block + codes_at, e)]);
            }
        }
    }
};
static_assert(IQ2_KS::block_bytes == 2 + 4 + 64);

}  // namespace minim
