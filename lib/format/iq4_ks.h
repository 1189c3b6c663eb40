// SPDX-License-Identifier: Apache-2.0
// IQ4_KS and IQ4_KSS (ik): 256 elements, 4-bit codes into a table of 16 values or its shifted twin, 8 groups
// of 32 with an 8-bit scale each: bits 1-7 make the scale (byte & 254) - 127, bit 0 set chooses the shifted
// values.
//
//   IQ4_KS    row header: d f32
//             0  scales  8 bytes
//             8  codes   128 bytes: 16 bytes hold 32 elements, low nibbles the first 16 of them
//
//   IQ4_KSS   row header: d f32
//             0  words   64 x u16, 8 for each group. Bit 0 of the eight words, first word lowest, make the
//                        scale byte. With bit 0 cleared, w xor (w >> 1) of the eight words are the 16 code
//                        bytes, low byte first
//   W = d * scale * iq4k[code + 16 * shifted]
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ4_KS.bin, IQ4_KSS.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

// Returns the scale in a scale byte of the IQ4_KS family, -127 … 127; its bit 0 chooses the table.
MINIM_HOST_DEVICE int ks_scale(int scale_byte) {
    return (scale_byte & 254) - 127;
}

struct IQ4_KS {
    static constexpr Format format = Format::iq4_ks;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 136;
    static constexpr int row_header_bytes = 4;
    static constexpr int scales_at = 0;
    static constexpr int codes_at = 8;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float row_scale, float* out) {
        for (int j = 0; j < 8; ++j) {
            const int scale_byte = block[scales_at + j];
            const float scale = row_scale * static_cast<float>(ks_scale(scale_byte));
            const int8_t* values = iq4k_values() + 16 * (scale_byte & 1);
            for (int e = 32 * j; e < 32 * j + 32; ++e) {
                out[e] = scale * static_cast<float>(values[code4_of_32(block + codes_at, e)]);
            }
        }
    }
};
static_assert(IQ4_KS::block_bytes == 8 + 128);

struct IQ4_KSS {
    static constexpr Format format = Format::iq4_kss;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 128;
    static constexpr int row_header_bytes = 4;

    // Writes the code bytes of group j as IQ4_KS has them and returns its scale byte.
    MINIM_HOST_DEVICE static int unpack_group(const uint8_t* block, int j, uint8_t* codes) {
        uint32_t scale_byte = 0;
        for (int k = 0; k < 8; ++k) {
            const uint32_t word = load_u16(block + 16 * j + 2 * k);
            scale_byte |= (word & 1U) << k;
            const uint32_t even = word & 0xFFFEU;
            const uint32_t pair = even ^ (even >> 1);
            codes[2 * k] = static_cast<uint8_t>(pair & 0xFFU);
            codes[2 * k + 1] = static_cast<uint8_t>(pair >> 8);
        }
        return static_cast<int>(scale_byte);
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float row_scale, float* out) {
        for (int j = 0; j < 8; ++j) {
            uint8_t codes[16];
            const int scale_byte = unpack_group(block, j, codes);
            const float scale = row_scale * static_cast<float>(ks_scale(scale_byte));
            const int8_t* values = iq4k_values() + 16 * (scale_byte & 1);
            for (int i = 0; i < 32; ++i) {
                out[32 * j + i] = scale * static_cast<float>(values[code4_of_32(codes, i)]);
            }
        }
    }
};
static_assert(IQ4_KSS::block_bytes == 64 * 2);

}  // namespace minim
