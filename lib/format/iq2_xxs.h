// SPDX-License-Identifier: Apache-2.0
// IQ2_XXS: 256 elements in 8 groups of 32; a group is four codebook entries of eight magnitudes, four sign indices
// and a scale.
//
//   0  d       f16
//   2  groups  8 x 8 bytes: 4 codebook indices, then a u32 with the sign index of entry k at bits 7k … 7k+6
//              and the scale at bits 28-31
//   W = d * (0.5 + scale) / 4 * iq2xxs[index] with the signs of ksigns[sign index]
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ2_XXS.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

struct IQ2_XXS {
    static constexpr Format format = Format::iq2_xxs;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 66;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int groups_at = 2;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int k = 0; k < 32; ++k) {
            const uint8_t* group = block + groups_at + 8 * (k >> 2);
            const uint32_t signs_and_scale = load_u32(group + 4);
            const float scale = d * (0.5F + static_cast<float>(signs_and_scale >> 28)) * 0.25F;
            const uint64_t point = iq2xxs_grid()[group[k & 3]];
            const uint32_t signs = ksigns()[bit_field(signs_and_scale, 7 * (k & 3), 7)];
            for (int i = 0; i < 8; ++i) {
                out[8 * k + i] = scale * static_cast<float>(signed_magnitude(point, i, signs, i));
            }
        }
    }
};
static_assert(IQ2_XXS::block_bytes == 2 + 8 * 8);

}  // namespace minim
