// SPDX-License-Identifier: Apache-2.0
// Q6_0 (ik): 32 elements, 6-bit codes, one scale.
//
//    0  d      f16
//    2  high   8 bytes: bits 4-5 of four codes each; byte e%8 holds element e at bit 4*((e%16)/8) + 2*(e/16)
//   10  codes  16 bytes: low nibbles elements 0-15, high nibbles elements 16-31
//   W = d * (code - 32)
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/Q6_0.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

struct Q6_0 {
    static constexpr Format format = Format::q6_0;
    static constexpr int block_elems = 32;
    static constexpr int block_bytes = 26;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int high_at = 2;
    static constexpr int codes_at = 10;

    // Returns the 6-bit code of element e, 0 … 63.
    MINIM_HOST_DEVICE static int code(const uint8_t* block, int e) {
        const int high = bit_field(block[high_at + (e & 7)], 4 * ((e >> 3) & 1) + 2 * (e >> 4), 2);
        return code4_of_32(block + codes_at, e) + 16 * high;
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int e = 0; e < 32; ++e) out[e] = d * static_cast<float>(code(block, e) - 32);
    }
};
static_assert(Q6_0::block_bytes == 2 + 8 + 16);

}  // namespace minim
