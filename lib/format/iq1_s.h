// SPDX-License-Identifier: Apache-2.0
// IQ1_S: 256 elements as 32 codebook entries of eight values -1, 0, 1; a 3-bit scale and a shift of 1/8 for each
// 32 elements.
//
//    0  d       f16
//    2  low     32 bytes: bits 0-7 of the index of entry k
//   34  groups  8 x u16: bits 8-10 of the index of entry k at bits 3*(k%4), scale at bits 12-14,
//               bit 15 set: shift down
//   W = d * (2 * scale + 1) * (iq1s[index] + shift), shift = +1/8 or -1/8
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ1_S.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"

namespace minim {

inline constexpr float k_iq1_shift = 0.125F;

struct IQ1_S {
    static constexpr Format format = Format::iq1_s;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 50;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int low_at = 2;
    static constexpr int groups_at = 34;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int k = 0; k < 32; ++k) {
            const uint32_t group = load_u16(block + groups_at + 2 * (k >> 2));
            const float scale = d * static_cast<float>(2 * bit_field(group, 12, 3) + 1);
            const float shift = (group & 0x8000U) != 0U ? -k_iq1_shift : k_iq1_shift;
            const uint64_t point = iq1s_grid()[block[low_at + k] + 256 * bit_field(group, 3 * (k & 3), 3)];
            for (int i = 0; i < 8; ++i) {
                out[8 * k + i] = scale * (static_cast<float>(static_cast<int8_t>(point >> (8 * i))) + shift);
            }
        }
    }
};
static_assert(IQ1_S::block_bytes == 2 + 32 + 8 * 2);

}  // namespace minim
