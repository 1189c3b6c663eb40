// SPDX-License-Identifier: Apache-2.0
// Q5_0 and Q5_1: Q4_0 and Q4_1 with a fifth bit for each code, kept apart.
//
//   Q5_0   0  d      f16
//          2  high   4 bytes: bit e%8 of byte e/8 is bit 4 of the code of element e
//          6  codes  16 bytes: low nibbles elements 0-15, high nibbles elements 16-31
//   W = d * (code - 16)
//
//   Q5_1   0  d      f16
//          2  m      f16
//          4  high   4 bytes as above
//          8  codes  16 bytes as above
//   W = d * code + m
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/Q5_0.bin, Q5_1.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

// Returns the 5-bit code of element e, 0 … 31.
MINIM_HOST_DEVICE int q5_code(const uint8_t* codes, const uint8_t* high, int e) {
    return code4_of_32(codes, e) + 16 * code1_in_order(high, e);
}

struct Q5_0 {
    static constexpr Format format = Format::q5_0;
    static constexpr int block_elems = 32;
    static constexpr int block_bytes = 22;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int high_at = 2;
    static constexpr int codes_at = 6;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int e = 0; e < 32; ++e) {
            out[e] = d * static_cast<float>(q5_code(block + codes_at, block + high_at, e) - 16);
        }
    }
};
static_assert(Q5_0::block_bytes == 2 + 4 + 16);

struct Q5_1 {
    static constexpr Format format = Format::q5_1;
    static constexpr int block_elems = 32;
    static constexpr int block_bytes = 24;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int m_at = 2;
    static constexpr int high_at = 4;
    static constexpr int codes_at = 8;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        const float m = load_f16(block + m_at);
        for (int e = 0; e < 32; ++e) {
            out[e] = d * static_cast<float>(q5_code(block + codes_at, block + high_at, e)) + m;
        }
    }
};
static_assert(Q5_1::block_bytes == 2 + 2 + 4 + 16);

}  // namespace minim
