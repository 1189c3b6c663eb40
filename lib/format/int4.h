// SPDX-License-Identifier: Apache-2.0
// Four-bit integers of quantised folders, W = d * (code - zero). The numbers 32, 64, 128 are the elements that share a scale.
//
//   INT4_S64, INT4_S128               0  d      f16
//   of 64, 128 elements               2  codes  32, 64 bytes: 32 bytes hold 64 elements, low nibbles the first 32 of them
//   zero is 8
//
//   INT4_Z32, INT4_Z64, INT4_Z128     0  d      2 x f16: magnitude and, instead of its sign, bit 4 of zero + 1
//   of 64, 128, 256 elements,         4  zeros  a byte: bits 0-3 of zero + 1, a nibble for each group
//   two groups                        5  codes  as above
//   zero is -1 ... 16
//
//   INT4_ROW                          row header: d, f32
//   of 64 elements                    0  codes  32 bytes as above
//   zero is 8
//
//   INT4_W32 (scales of F32)          0  d      f32
//   of 32 elements                    4  zero   u32
//                                     8  codes  16 bytes: low nibbles elements 0-15, high nibbles elements 16-31
//
// Pinned by tests/unit/format/integers_test.cpp
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

template <Format type, int size>
struct Int4Symmetric {
    static constexpr Format format = type;
    static constexpr int group = size;
    static constexpr int block_elems = size;
    static constexpr int block_bytes = 2 + size / 2;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int codes_at = 2;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int e = 0; e < block_elems; ++e)
            out[e] = d * static_cast<float>(code4_of_64(block + codes_at, e) - 8);
    }
};
using INT4_S64 = Int4Symmetric<Format::int4_s64, 64>;
using INT4_S128 = Int4Symmetric<Format::int4_s128, 128>;
static_assert(INT4_S64::block_bytes == 2 + 32 && INT4_S128::block_bytes == 2 + 64);

template <Format type, int size>
struct Int4WithZeros {
    static constexpr Format format = type;
    static constexpr int group = size;
    static constexpr int n_groups = 2;  // the nibbles of the byte of zeros
    static constexpr int block_elems = n_groups * size;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int zeros_at = 2 * n_groups;
    static constexpr int codes_at = zeros_at + 1;
    static constexpr int block_bytes = codes_at + block_elems / 2;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        for (int g = 0; g < n_groups; ++g) {
            const int d_bits = load_u16(block + d_at + 2 * g);
            const float d = f16_to_float(static_cast<uint16_t>(d_bits & 0x7FFF));
            const int zero = nibble(block[zeros_at], g) + 16 * (d_bits >> 15) - 1;
            for (int e = g * group; e < (g + 1) * group; ++e)
                out[e] = d * static_cast<float>(code4_of_64(block + codes_at, e) - zero);
        }
    }
};
using INT4_Z32 = Int4WithZeros<Format::int4_z32, 32>;
using INT4_Z64 = Int4WithZeros<Format::int4_z64, 64>;
using INT4_Z128 = Int4WithZeros<Format::int4_z128, 128>;
static_assert(INT4_Z32::block_bytes == 4 + 1 + 32 && INT4_Z64::block_bytes == 4 + 1 + 64 &&
              INT4_Z128::block_bytes == 4 + 1 + 128);

struct INT4_ROW {
    static constexpr Format format = Format::int4_row;
    static constexpr int block_elems = 64;
    static constexpr int block_bytes = 32;
    static constexpr int row_header_bytes = 4;
    static constexpr int codes_at = 0;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float row_scale, float* out) {
        for (int e = 0; e < block_elems; ++e)
            out[e] = row_scale * static_cast<float>(code4_of_64(block + codes_at, e) - 8);
    }
};

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
