// SPDX-License-Identifier: Apache-2.0
// Q6_K: 256 elements, 6-bit codes, 16 groups of 16 with a signed 8-bit scale each.
//
//     0  codes   128 bytes: 64 bytes hold 128 elements, low nibbles the first 64 of them
//   128  high    64 bytes: bits 4-5 of the codes; 32 bytes hold 128 elements, the lowest bits the first 32 of them
//   192  scales  16 x i8
//   208  d       f16
//   W = d * scale * (code - 32)
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/Q6_K.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

struct Q6_K {
    static constexpr Format format = Format::q6_k;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 210;
    static constexpr int row_header_bytes = 0;
    static constexpr int codes_at = 0;
    static constexpr int high_at = 128;
    static constexpr int scales_at = 192;
    static constexpr int d_at = 208;

    // Returns the 6-bit code of element e, 0 … 63.
    MINIM_HOST_DEVICE static int code(const uint8_t* block, int e) {
        const int low = nibble(block[codes_at + 64 * (e >> 7) + (e & 63)], (e >> 6) & 1);
        return low + 16 * code2_of_128(block + high_at, e);
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int g = 0; g < 16; ++g) {
            const float scale = d * static_cast<float>(static_cast<int8_t>(block[scales_at + g]));
            for (int e = 16 * g; e < 16 * g + 16; ++e)
                out[e] = scale * static_cast<float>(code(block, e) - 32);
        }
    }
};
static_assert(Q6_K::block_bytes == 128 + 64 + 16 + 2);

}  // namespace minim
