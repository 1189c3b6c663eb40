// SPDX-License-Identifier: Apache-2.0
// Q1_0 and Q2_0: codes in the order of the elements, lowest bits first, under one scale.
//
//   Q1_0, 128 elements   0  d      f16
//                        2  codes  16 bytes, eight 1-bit codes each
//   W = d * (2 * code - 1)
//
//   Q2_0, 64 elements    0  d      f16
//                        2  codes  16 bytes, four 2-bit codes each
//   W = d * (code - 1)
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/Q1_0.bin, Q2_0.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

struct Q1_0 {
    static constexpr Format format = Format::q1_0;
    static constexpr int block_elems = 128;
    static constexpr int block_bytes = 18;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int codes_at = 2;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int e = 0; e < 128; ++e) out[e] = code1_in_order(block + codes_at, e) != 0 ? d : -d;
    }
};
static_assert(Q1_0::block_bytes == 2 + 16);

struct Q2_0 {
    static constexpr Format format = Format::q2_0;
    static constexpr int block_elems = 64;
    static constexpr int block_bytes = 18;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int codes_at = 2;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int e = 0; e < 64; ++e) {
            out[e] = d * static_cast<float>(bit_field(block[codes_at + (e >> 2)], 2 * (e & 3), 2) - 1);
        }
    }
};
static_assert(Q2_0::block_bytes == 2 + 16);

}  // namespace minim
