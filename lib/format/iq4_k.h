// SPDX-License-Identifier: Apache-2.0
// IQ4_K (ik): 256 elements, 4-bit codes into a table of 16 values or its shifted twin, a 6-bit scale for
// each 16.
//
//    0  d       f16
//    2  extra   u16: bit g set: elements 16g … 16g+15 use the shifted values
//    4  high    4 bytes: bits 4-5 of scale g at bits 2*(g%4) of byte g/4
//    8  low     8 bytes: bits 0-3 of scale g are nibble g%2 of byte g/2
//   16  codes   128 bytes: 16 bytes hold 32 elements, low nibbles the first 16 of them
//   W = d * (scale - 32) * iq4k[code + 16 * shifted]
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ4_K.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

// Returns the scale of elements 16g … 16g+15 of IQ4_K and IQ5_K, -32 … 31.
MINIM_HOST_DEVICE int iq4_k_scale(const uint8_t* low, const uint8_t* high, int g) {
    return nibble(low[g >> 1], g & 1) + 16 * bit_field(high[g >> 2], 2 * (g & 3), 2) - 32;
}

struct IQ4_K {
    static constexpr Format format = Format::iq4_k;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 144;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int extra_at = 2;
    static constexpr int high_at = 4;
    static constexpr int low_at = 8;
    static constexpr int codes_at = 16;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        const uint32_t extra = load_u16(block + extra_at);
        for (int g = 0; g < 16; ++g) {
            const float scale = d * static_cast<float>(iq4_k_scale(block + low_at, block + high_at, g));
            const int8_t* values = iq4k_values() + 16 * bit_field(extra, g, 1);
            for (int e = 16 * g; e < 16 * g + 16; ++e) {
                out[e] = scale * static_cast<float>(values[code4_of_32(block + codes_at, e)]);
            }
        }
    }
};
static_assert(IQ4_K::block_bytes == 2 + 2 + 4 + 8 + 128);

}  // namespace minim
