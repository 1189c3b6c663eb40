// SPDX-License-Identifier: Apache-2.0
// IQ2_XS: 256 elements as 32 codebook entries of eight magnitudes; a 4-bit scale for each 16 elements.
//
//    0  d       f16
//    2  entries 32 x u16: bits 0-8 the codebook index, bits 9-15 the sign index
//   66  scales  8 bytes: nibble g%2 of byte g/2 scales elements 16g … 16g+15
//   W = d * (0.5 + scale) / 4 * iq2xs[index] with the signs of ksigns[sign index]
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ2_XS.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

struct IQ2_XS {
    static constexpr Format format = Format::iq2_xs;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 74;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int entries_at = 2;
    static constexpr int scales_at = 66;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int k = 0; k < 32; ++k) {
            const float group = static_cast<float>(nibble(block[scales_at + (k >> 2)], (k >> 1) & 1));
            const float scale = d * (0.5F + group) * 0.25F;
            const uint32_t packed = load_u16(block + entries_at + 2 * k);
            const uint64_t point = iq2xs_grid()[packed & 511U];
            const uint32_t signs = ksigns()[packed >> 9];
            for (int i = 0; i < 8; ++i) {
                out[8 * k + i] = scale * static_cast<float>(signed_magnitude(point, i, signs, i));
            }
        }
    }
};
static_assert(IQ2_XS::block_bytes == 2 + 64 + 8);

}  // namespace minim
