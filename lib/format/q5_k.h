// SPDX-License-Identifier: Apache-2.0
// Q5_K: Q4_K with a fifth bit for each code, kept apart.
//
//    0  d       f16
//    2  dmin    f16
//    4  scales  12 bytes as in q4_k.h
//   16  high    32 bytes: bit e/32 of byte e%32 is bit 4 of the code
//   48  codes   128 bytes: 32 bytes hold 64 elements, low nibbles the first 32 of them
//   W = d * scale * code - dmin * minimum
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/Q5_K.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/q4_k.h"

namespace minim {

struct Q5_K {
    static constexpr Format format = Format::q5_k;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 176;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int dmin_at = 2;
    static constexpr int scales_at = 4;
    static constexpr int high_at = 16;
    static constexpr int codes_at = 48;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        const float dmin = load_f16(block + dmin_at);
        for (int j = 0; j < 8; ++j) {
            const ScaleAndMinimum group = q4_k_scale(block + scales_at, j);
            const float scale = d * static_cast<float>(group.scale);
            const float minimum = dmin * static_cast<float>(group.minimum);
            for (int e = 32 * j; e < 32 * j + 32; ++e) {
                const int code = code4_of_64(block + codes_at, e) + 16 * code1_of_256(block + high_at, e);
                out[e] = scale * static_cast<float>(code) - minimum;
            }
        }
    }
};
static_assert(Q5_K::block_bytes == 2 + 2 + 12 + 32 + 128);

}  // namespace minim
