// SPDX-License-Identifier: Apache-2.0
// IQ3_XXS: 256 elements as 64 codebook entries of four magnitudes; signs and a 4-bit scale for each 32 elements.
//
//    0  d       f16
//    2  entries 64 bytes, a codebook index each
//   66  groups  8 x u32: the sign index of the group's elements 8k … 8k+7 at bits 7k … 7k+6,
//               the scale at bits 28-31
//   W = d * (0.5 + scale) / 2 * iq3xxs[index] with the signs of ksigns[sign index]
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ3_XXS.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

struct IQ3_XXS {
    static constexpr Format format = Format::iq3_xxs;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 98;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int entries_at = 2;
    static constexpr int groups_at = 66;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int k = 0; k < 64; ++k) {
            const uint32_t signs_and_scale = load_u32(block + groups_at + 4 * (k >> 3));
            const float scale = d * (0.5F + static_cast<float>(signs_and_scale >> 28)) * 0.5F;
            const uint32_t point = iq3xxs_grid()[block[entries_at + k]];
            const uint32_t signs = ksigns()[bit_field(signs_and_scale, 7 * ((k >> 1) & 3), 7)];
            for (int i = 0; i < 4; ++i) {
                const int value = signed_magnitude(point, i, signs, 4 * (k & 1) + i);
                out[4 * k + i] = scale * static_cast<float>(value);
            }
        }
    }
};
static_assert(IQ3_XXS::block_bytes == 2 + 64 + 8 * 4);

}  // namespace minim
