// SPDX-License-Identifier: Apache-2.0
// Eight-bit integers of quantised folders, W = d * (code - zero). The numbers 32, 64, 128 are the elements that share a scale;
// they are also the elements of a block.
//
//   INT8_S64, INT8_S128               0  d      f16
//   zero is 0                         2  codes  i8
//
//   INT8_Z32, INT8_Z64, INT8_Z128     0  d      f16: magnitude and, instead of its sign, bit 8 of zero + 129
//   zero is -129 ... 128              2  zero   bits 0-7 of zero + 129
//                                     3  codes  i8
//
//   INT8_ROW                          row header: d, f32
//   of 32 elements, zero is 0         0  codes  i8
//
//   INT8_W32 (scales of F32)          0  d      f32
//                                     4  zero   i32
//                                     8  codes  i8
//
// Pinned by tests/unit/format/integers_test.cpp
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

template <Format type, int elems>
struct Int8Symmetric {
    static constexpr Format format = type;
    static constexpr int group = elems;
    static constexpr int block_elems = elems;
    static constexpr int block_bytes = 2 + elems;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int codes_at = 2;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int e = 0; e < block_elems; ++e)
            out[e] = d * static_cast<float>(static_cast<int8_t>(block[codes_at + e]));
    }
};
using INT8_S64 = Int8Symmetric<Format::int8_s64, 64>;
using INT8_S128 = Int8Symmetric<Format::int8_s128, 128>;

template <Format type, int elems>
struct Int8WithZeros {
    static constexpr Format format = type;
    static constexpr int group = elems;
    static constexpr int block_elems = elems;
    static constexpr int block_bytes = 3 + elems;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int zero_at = 2;
    static constexpr int codes_at = 3;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const int d_bits = load_u16(block + d_at);
        const float d = f16_to_float(static_cast<uint16_t>(d_bits & 0x7FFF));
        const int zero = block[zero_at] + 256 * (d_bits >> 15) - 129;
        for (int e = 0; e < block_elems; ++e)
            out[e] = d * static_cast<float>(static_cast<int8_t>(block[codes_at + e]) - zero);
    }
};
using INT8_Z32 = Int8WithZeros<Format::int8_z32, 32>;
using INT8_Z64 = Int8WithZeros<Format::int8_z64, 64>;
using INT8_Z128 = Int8WithZeros<Format::int8_z128, 128>;

struct INT8_ROW {
    static constexpr Format format = Format::int8_row;
    static constexpr int block_elems = 32;
    static constexpr int block_bytes = 32;
    static constexpr int row_header_bytes = 4;
    static constexpr int codes_at = 0;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float row_scale, float* out) {
        for (int e = 0; e < block_elems; ++e)
            out[e] = row_scale * static_cast<float>(static_cast<int8_t>(block[codes_at + e]));
    }
};

struct INT8_W32 {
    static constexpr Format format = Format::int8_w32;
    static constexpr int block_elems = 32;
    static constexpr int block_bytes = 40;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int zero_at = 4;
    static constexpr int codes_at = 8;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f32(block + d_at);
        const auto zero = static_cast<int>(load_u32(block + zero_at));
        for (int e = 0; e < 32; ++e)
            out[e] = d * static_cast<float>(static_cast<int8_t>(block[codes_at + e]) - zero);
    }
};
static_assert(INT8_W32::block_bytes == 4 + 4 + 32);

}  // namespace minim
