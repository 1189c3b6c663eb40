// SPDX-License-Identifier: Apache-2.0
// IQ2_S: 256 elements as 32 codebook entries of eight magnitudes; a 4-bit scale for each 16 elements; all eight
// signs are stored.
//
//    0  d       f16
//    2  low     32 bytes: bits 0-7 of the index of entry k
//   34  signs   32 bytes, one for each entry
//   66  high    8 bytes: bits 8-9 of the index of entry k at bit 2*(k%4) of byte k/4
//   74  scales  8 bytes: nibble g%2 of byte g/2 scales elements 16g … 16g+15
//   W = d * (0.5 + scale) / 4 * iq2s[index] with the signs
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ2_S.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

struct IQ2_S {
    static constexpr Format format = Format::iq2_s;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 82;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int low_at = 2;
    static constexpr int signs_at = 34;
    static constexpr int high_at = 66;
    static constexpr int scales_at = 74;

    MINIM_HOST_DEVICE static int entry_index(const uint8_t* block, int k) {
        return block[low_at + k] + 256 * bit_field(block[high_at + (k >> 2)], 2 * (k & 3), 2);
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int k = 0; k < 32; ++k) {
            const float group = static_cast<float>(nibble(block[scales_at + (k >> 2)], (k >> 1) & 1));
            const float scale = d * (0.5F + group) * 0.25F;
            const uint64_t point = iq2s_grid()[entry_index(block, k)];
            const uint32_t signs = block[signs_at + k];
            for (int i = 0; i < 8; ++i) {
                out[8 * k + i] = scale * static_cast<float>(signed_magnitude(point, i, signs, i));
            }
        }
    }
};
static_assert(IQ2_S::block_bytes == 2 + 32 + 32 + 8 + 8);

}  // namespace minim
