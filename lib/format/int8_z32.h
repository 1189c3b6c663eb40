// SPDX-License-Identifier: Apache-2.0
// INT8_Z32: 32 elements of eight bits with a scale and a zero point, for quantised folders with 8-bit integers that do not fit
// Q8_0: with zero points, or with F32 scales.
//
//   0  d      f32
//   4  zero   i32, -128 … 128
//   8  codes  32 x i8
//   W = d * (code - zero)
//
// Pinned by tests/unit/format/integers_test.cpp
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

struct INT8_Z32 {
    static constexpr Format format = Format::int8_z32;
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
static_assert(INT8_Z32::block_bytes == 4 + 4 + 32);

}  // namespace minim
