// SPDX-License-Identifier: Apache-2.0
// INT4_Z32 and INT4_W32: 32 elements of four bits with a scale and a zero point, for quantised folders in groups of 32 and 64.
// INT4_W32 is for folders with F32 scales.
//
//   INT4_Z32   0  d      f16
//              2  zero   u16, 0 … 16
//              4  codes  16 bytes: low nibbles elements 0-15, high nibbles elements 16-31
//   INT4_W32   0  d      f32
//              4  zero   u32
//              8  codes  as above
//   W = d * (code - zero)
//
// Pinned by tests/unit/format/integers_test.cpp
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

struct INT4_Z32 {
    static constexpr Format format = Format::int4_z32;
    static constexpr int block_elems = 32;
    static constexpr int block_bytes = 20;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int zero_at = 2;
    static constexpr int codes_at = 4;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        const int zero = load_u16(block + zero_at);
        for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(code4_of_32(block + codes_at, e) - zero);
    }
};
static_assert(INT4_Z32::block_bytes == 2 + 2 + 16);

struct INT4_W32 {
    static constexpr Format format = Format::int4_w32;
    static constexpr int block_elems = 32;
    static constexpr int block_bytes = 24;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int zero_at = 4;
    static constexpr int codes_at = 8;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f32(block + d_at);
        const auto zero = static_cast<int>(load_u32(block + zero_at));
        for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(code4_of_32(block + codes_at, e) - zero);
    }
};
static_assert(INT4_W32::block_bytes == 4 + 4 + 16);

}  // namespace minim
