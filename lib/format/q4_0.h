// SPDX-License-Identifier: Apache-2.0
// Q4_0 and Q4_1: 32 elements, 4-bit codes, one scale; Q4_1 adds a minimum.
//
//   Q4_0   0  d      f16
//          2  codes  16 bytes: low nibbles elements 0-15, high nibbles elements 16-31
//   W = d * (code - 8)
//
//   Q4_1   0  d      f16
//          2  m      f16
//          4  codes  16 bytes as above
//   W = d * code + m
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/Q4_0.bin, Q4_1.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

struct Q4_0 {
    static constexpr Format format = Format::q4_0;
    static constexpr int block_elems = 32;
    static constexpr int block_bytes = 18;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int codes_at = 2;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(code4_of_32(block + codes_at, e) - 8);
    }
};
static_assert(Q4_0::block_bytes == 2 + 16);

struct Q4_1 {
    static constexpr Format format = Format::q4_1;
    static constexpr int block_elems = 32;
    static constexpr int block_bytes = 20;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int m_at = 2;
    static constexpr int codes_at = 4;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        const float m = load_f16(block + m_at);
        for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(code4_of_32(block + codes_at, e)) + m;
    }
};
static_assert(Q4_1::block_bytes == 2 + 2 + 16);

}  // namespace minim
