// SPDX-License-Identifier: Apache-2.0
// IQ6_K (ik): 256 elements, 6-bit codes into a table of 64 values or its shifted twin, 16 groups of 16 with a
// signed 8-bit scale each. The values are the integer table of the fork's matrix kernels, not the cubic polynomial of
// its row decoder.
//
//     0  d       f16
//     2  extra   u16: bit g set: elements 16g … 16g+15 use the shifted values
//     4  scales  16 x i8
//    20  codes   128 bytes: 32 bytes hold 64 elements, low nibbles the first 32 of them
//   148  high    64 bytes: bits 4-5 of the codes; 32 bytes hold 128 elements, the lowest bits the first 32 of them
//   W = d * scale * iq6k[code + 64 * shifted]
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ6_K.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

struct IQ6_K {
    static constexpr Format format = Format::iq6_k;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 212;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int extra_at = 2;
    static constexpr int scales_at = 4;
    static constexpr int codes_at = 20;
    static constexpr int high_at = 148;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        const uint32_t extra = load_u16(block + extra_at);
        for (int g = 0; g < 16; ++g) {
            const float scale = d * static_cast<float>(static_cast<int8_t>(block[scales_at + g]));
            const int8_t* values = iq6k_values() + 64 * bit_field(extra, g, 1);
            for (int e = 16 * g; e < 16 * g + 16; ++e) {
                const int code = code4_of_64(block + codes_at, e) + 16 * code2_of_128(block + high_at, e);
                out[e] = scale * static_cast<float>(values[code]);
            }
        }
    }
};
static_assert(IQ6_K::block_bytes == 2 + 2 + 16 + 128 + 64);

}  // namespace minim
