// SPDX-License-Identifier: Apache-2.0
// INT4_Z128: 128 elements of four bits with a scale and a zero point: the groups of AWQ folders.
//
//   0  d      f16
//   2  zero   u16, 0 … 15
//   4  codes  64 bytes: 32 bytes hold 64 elements, low nibbles the first 32 of them
//   W = d * (code - zero)
//
// Pinned by tests/unit/format/gather_test.cpp
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

struct INT4_Z128 {
    static constexpr Format format = Format::int4_z128;
    static constexpr int block_elems = 128;
    static constexpr int block_bytes = 68;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int zero_at = 2;
    static constexpr int codes_at = 4;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        const int zero = load_u16(block + zero_at);
        for (int e = 0; e < block_elems; ++e)
            out[e] = d * static_cast<float>(code4_of_64(block + codes_at, e) - zero);
    }
};
static_assert(INT4_Z128::block_bytes == 2 + 2 + 64);

}  // namespace minim
