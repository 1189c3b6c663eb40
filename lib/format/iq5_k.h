// SPDX-License-Identifier: Apache-2.0
// IQ5_K and IQ5_KS (ik): 256 elements, 5-bit codes into a table of 32 values or its shifted twin.
//
//   IQ5_K      0  d       f16
//              2  extra   u16: bit g set: elements 16g … 16g+15 use the shifted values
//              4  high    4 bytes: bits 4-5 of scale g at bits 2*(g%4) of byte g/4
//              8  low     8 bytes: bits 0-3 of scale g are nibble g%2 of byte g/2
//             16  codes   128 bytes: 32 bytes hold 64 elements, low nibbles the first 32 of them
//            144  fifth   32 bytes: bit e/32 of byte e%32 is bit 4 of the code
//   W = d * (scale - 32) * iq5k[code + 32 * shifted]
//
//   IQ5_KS    row header: d f32
//              0  scales  8 bytes as in IQ4_KS
//              8  codes   128 bytes as above
//            136  fifth   32 bytes as above
//   W = d * scale * iq5k[code + 32 * shifted]
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ5_K.bin, IQ5_KS.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"
#include "format/iq4_k.h"
#include "format/iq4_ks.h"

namespace minim {

struct IQ5_K {
    static constexpr Format format = Format::iq5_k;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 176;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int extra_at = 2;
    static constexpr int high_at = 4;
    static constexpr int low_at = 8;
    static constexpr int codes_at = 16;
    static constexpr int fifth_at = 144;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        const uint32_t extra = load_u16(block + extra_at);
        for (int g = 0; g < 16; ++g) {
            const float scale = d * static_cast<float>(iq4_k_scale(block + low_at, block + high_at, g));
            const int8_t* values = iq5k_values() + 32 * bit_field(extra, g, 1);
            for (int e = 16 * g; e < 16 * g + 16; ++e) {
                const int code = code4_of_64(block + codes_at, e) + 16 * code1_of_256(block + fifth_at, e);
                out[e] = scale * static_cast<float>(values[code]);
            }
        }
    }
};
static_assert(IQ5_K::block_bytes == 2 + 2 + 4 + 8 + 128 + 32);

struct IQ5_KS {
    static constexpr Format format = Format::iq5_ks;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 168;
    static constexpr int row_header_bytes = 4;
    static constexpr int scales_at = 0;
    static constexpr int codes_at = 8;
    static constexpr int fifth_at = 136;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float row_scale, float* out) {
        for (int j = 0; j < 8; ++j) {
            const int scale_byte = block[scales_at + j];
            const float scale = row_scale * static_cast<float>(ks_scale(scale_byte));
            const int8_t* values = iq5k_values() + 32 * (scale_byte & 1);
            for (int e = 32 * j; e < 32 * j + 32; ++e) {
                const int code = code4_of_64(block + codes_at, e) + 16 * code1_of_256(block + fifth_at, e);
                out[e] = scale * static_cast<float>(values[code]);
            }
        }
    }
};
static_assert(IQ5_KS::block_bytes == 8 + 128 + 32);

}  // namespace minim
