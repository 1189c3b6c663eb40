// SPDX-License-Identifier: Apache-2.0
// Q8_0: 32 signed bytes and one scale. Also the activation format of the 32-element weight formats and a KV
// format.
//
//   0  d      f16
//   2  codes  32 x i8
//   W = d * code
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/Q8_0.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

struct Q8_0 {
    static constexpr Format format = Format::q8_0;
    static constexpr int block_elems = 32;
    static constexpr int block_bytes = 34;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int codes_at = 2;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f16(block + d_at);
        for (int e = 0; e < 32; ++e)
            out[e] = d * static_cast<float>(static_cast<int8_t>(block[codes_at + e]));
    }
};
static_assert(Q8_0::block_bytes == 2 + 32);

}  // namespace minim
