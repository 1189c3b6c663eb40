// SPDX-License-Identifier: Apache-2.0
// IQ3_S: 256 elements as 64 codebook entries of four magnitudes; a 4-bit scale for each 32 elements; all signs
// stored.
//
//     0  d       f16
//     2  low     64 bytes: bits 0-7 of the index of entry k
//    66  high    8 bytes: bit 8 of the index of entry k is bit k%8 of byte k/8
//    74  signs   32 bytes, one for each 8 elements
//   106  scales  4 bytes: nibble j%2 of byte j/2 scales elements 32j … 32j+31
//   W = d * (1 + 2 * scale) * iq3s[index] with the signs
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ3_S.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

struct IQ3_S {
    static constexpr Format format = Format::iq3_s;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 110;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int low_at = 2;
    static constexpr int high_at = 66;
    static constexpr int signs_at = 74;
    static constexpr int scales_at = 106;

    MINIM_HOST_DEVICE static int entry_index(const uint8_t* block, int k) {
        return block[low_at + k] + 256 * code1_in_order(block + high_at, k);
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int k = 0; k < 64; ++k) {
            const float scale =
                d * static_cast<float>(1 + 2 * nibble(block[scales_at + (k >> 4)], (k >> 3) & 1));
            const uint32_t point = iq3s_grid()[entry_index(block, k)];
            const uint32_t signs = block[signs_at + (k >> 1)];
            for (int i = 0; i < 4; ++i) {
                const int value = signed_magnitude(point, i, signs, 4 * (k & 1) + i);
                out[4 * k + i] = scale * static_cast<float>(value);
            }
        }
    }
};
static_assert(IQ3_S::block_bytes == 2 + 64 + 8 + 32 + 4);

}  // namespace minim
