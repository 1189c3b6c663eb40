// SPDX-License-Identifier: Apache-2.0
// IQ3_K and IQ3_KS (ik): 256 elements, 3-bit codes into a table of 8 values or its shifted twin.
//
//   IQ3_K     0  d       f16
//             2  extra   u16: bit g set: elements 16g … 16g+15 use the shifted values
//             4  signs   u16: bit g set: the scale of elements 16g … 16g+15 is negative
//             6  scales  8 bytes: nibble g%2 of byte g/2
//            14  codes   64 bytes: 32 bytes hold 128 elements, the lowest bits of each byte the first 32 of them
//            78  high    32 bytes: bit e/32 of byte e%32 is bit 2 of the code
//   W = +-d * (2 * scale + 1) * iq3k[code + 8 * shifted]
//
//   IQ3_KS   row header: d f16
//             0  extra   u16: bit j is bit 4 of scale j;
//                     bit 8 + j set: elements 32j … 32j+31 use the shifted values
//             2  scales  4 bytes: bits 0-3 of scale j are nibble j/4 of byte j%4
//             6  codes   64 bytes as above
//            70  high    32 bytes as above
//   W = d * (scale - 16) * iq3k[code + 8 * shifted]
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ3_K.bin, IQ3_KS.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

struct IQ3_K {
    static constexpr Format format = Format::iq3_k;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 110;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int extra_at = 2;
    static constexpr int signs_at = 4;
    static constexpr int scales_at = 6;
    static constexpr int codes_at = 14;
    static constexpr int high_at = 78;

    // Returns the scale of elements 16g … 16g+15: an odd number, -31 … 31.
    MINIM_HOST_DEVICE static int group_scale(const uint8_t* block, int g) {
        const int magnitude = 2 * nibble(block[scales_at + (g >> 1)], g & 1) + 1;
        return bit_field(load_u16(block + signs_at), g, 1) != 0 ? -magnitude : magnitude;
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        const uint32_t extra = load_u16(block + extra_at);
        for (int g = 0; g < 16; ++g) {
            const float scale = d * static_cast<float>(group_scale(block, g));
            const int8_t* values = iq3k_values() + 8 * bit_field(extra, g, 1);
            for (int e = 16 * g; e < 16 * g + 16; ++e) {
                const int code = code2_of_128(block + codes_at, e) + 4 * code1_of_256(block + high_at, e);
                out[e] = scale * static_cast<float>(values[code]);
            }
        }
    }
};
static_assert(IQ3_K::block_bytes == 2 + 2 + 2 + 8 + 64 + 32);

struct IQ3_KS {
    static constexpr Format format = Format::iq3_ks;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 102;
    static constexpr int row_header_bytes = 2;
    static constexpr int extra_at = 0;
    static constexpr int scales_at = 2;
    static constexpr int codes_at = 6;
    static constexpr int high_at = 70;

    // Returns the scale of elements 32j … 32j+31, -16 … 15.
    MINIM_HOST_DEVICE static int group_scale(const uint8_t* block, int j) {
        const uint32_t extra = load_u16(block + extra_at);
        return nibble(block[scales_at + (j & 3)], j >> 2) + 16 * bit_field(extra, j, 1) - 16;
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float row_scale, float* out) {
        const uint32_t extra = load_u16(block + extra_at);
        for (int j = 0; j < 8; ++j) {
            const float scale = row_scale * static_cast<float>(group_scale(block, j));
            const int8_t* values = iq3k_values() + 8 * bit_field(extra, 8 + j, 1);
            for (int e = 32 * j; e < 32 * j + 32; ++e) {
                const int code = code2_of_128(block + codes_at, e) + 4 * code1_of_256(block + high_at, e);
                out[e] = scale * static_cast<float>(values[code]);
            }
        }
    }
};
static_assert(IQ3_KS::block_bytes == 2 + 4 + 64 + 32);

}  // namespace minim
