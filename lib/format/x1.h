// SPDX-License-Identifier: Apache-2.0
// X1_S and X1_M: the unpacked formats of IQ1_S and IQ1_M (format/expand.h), 256 elements of two bits each.
//
// X1_S
//   0  d       f32
//   4  scales  4 bytes: nibble j%2 of byte j/2 has the scale of elements 32j … 32j+31 at bits 0-2, bit 3 set: shift down
//   8  codes   64 bytes: 32 bytes hold 128 elements, the lowest bits of each byte the first 32 of them
//
// X1_M
//   0  d       f32
//   4  shifts  32 bits: bit k set: the shift of elements 8k … 8k+7 is down
//   8  scales  8 bytes: nibble g%2 of byte g/2 scales elements 16g … 16g+15
//  16  codes   as above
//
//   W = d * (2 * scale + 1) * (code - 1 + shift), shift = +1/8 or -1/8: the same bits as decoded from IQ1_S and IQ1_M
//
// Pinned by tests/unit/format/expand_test.cpp
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/iq1_s.h"

namespace minim {

struct X1_S {
    static constexpr Format format = Format::x1_s;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 72;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int scales_at = 4;
    static constexpr int codes_at = 8;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f32(block + d_at);
        for (int e = 0; e < 256; ++e) {
            const int group = nibble(block[scales_at + e / 64], e / 32 % 2);
            const float scale = d * static_cast<float>(2 * (group & 7) + 1);
            const float shift = (group & 8) != 0 ? -k_iq1_shift : k_iq1_shift;
            out[e] = scale * (static_cast<float>(code2_of_128(block + codes_at, e) - 1) + shift);
        }
    }
};
static_assert(X1_S::block_bytes == 4 + 4 + 64);

struct X1_M {
    static constexpr Format format = Format::x1_m;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 80;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int shifts_at = 4;
    static constexpr int scales_at = 8;
    static constexpr int codes_at = 16;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f32(block + d_at);
        for (int e = 0; e < 256; ++e) {
            const int group = nibble(block[scales_at + e / 32], e / 16 % 2);
            const float scale = d * static_cast<float>(2 * group + 1);
            const bool is_down = code1_in_order(block + shifts_at, e / 8) != 0;
            const float shift = is_down ? -k_iq1_shift : k_iq1_shift;
            out[e] = scale * (static_cast<float>(code2_of_128(block + codes_at, e) - 1) + shift);
        }
    }
};
static_assert(X1_M::block_bytes == 4 + 4 + 8 + 64);

}  // namespace minim
