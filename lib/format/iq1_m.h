// SPDX-License-Identifier: Apache-2.0
// IQ1_M: IQ1_S with a scale for each 16 elements, a shift for each 8, and d hidden in the scale words.
//
//    0  low     32 bytes: bits 0-7 of the index of entry k
//   32  high    16 bytes: nibble k%2 of byte k/2 has bits 8-10 of the index of entry k; bit 3 set: shift down
//   48  scales  4 x u16: the scale of elements 16g … 16g+15 at bits 3*(g%4) of word g/4;
//               the top nibbles of the four words, lowest first, are the f16 d
//   W = d * (2 * scale + 1) * (iq1s[index] + shift), shift = +1/8 or -1/8
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/IQ1_M.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/grids.h"
#include "format/iq1_s.h"

namespace minim {

// Returns the scale of the block from the top nibbles of its four scale words.
MINIM_HOST_DEVICE float iq1_m_d(const uint8_t* scales) {
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= (uint32_t{load_u16(scales + 2 * i)} >> 12) << (4 * i);
    return f16_to_float(static_cast<uint16_t>(bits));
}

struct IQ1_M {
    static constexpr Format format = Format::iq1_m;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 56;
    static constexpr int row_header_bytes = 0;
    static constexpr int low_at = 0;
    static constexpr int high_at = 32;
    static constexpr int scales_at = 48;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = iq1_m_d(block + scales_at);
        for (int k = 0; k < 32; ++k) {
            const int g = k >> 1;
            const int group = bit_field(load_u16(block + scales_at + 2 * (g >> 2)), 3 * (g & 3), 3);
            const float scale = d * static_cast<float>(2 * group + 1);
            const int high = nibble(block[high_at + g], k & 1);
            const float shift = (high & 8) != 0 ? -k_iq1_shift : k_iq1_shift;
            const uint64_t point = iq1s_grid()[block[low_at + k] + 256 * (high & 7)];
            for (int i = 0; i < 8; ++i) {
                out[8 * k + i] = scale * (static_cast<float>(static_cast<int8_t>(point >> (8 * i))) + shift);
            }
        }
    }
};
static_assert(IQ1_M::block_bytes == 32 + 16 + 4 * 2);

}  // namespace minim
