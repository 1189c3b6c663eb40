// SPDX-License-Identifier: Apache-2.0
// MXFP8: 32 FP8 numbers under one power of two.
//
//   0  x      u8, an E8M0 exponent
//   1  codes  32 bytes, E4M3 (e4m3.h), in the order of FP8_E4M3_B128
//   W = 2^(x - 127) * e4m3(code)
//
// Pinned by tests/unit/format/integers_test.cpp
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/format.h"
#include "format/fp8_e4m3_b128.h"

namespace minim {

struct MXFP8 {
    static constexpr Format format = Format::mxfp8;
    static constexpr int block_elems = 32;
    static constexpr int block_bytes = 33;
    static constexpr int row_header_bytes = 0;
    static constexpr int exponent_at = 0;
    static constexpr int codes_at = 1;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float scale = e8m0_to_float(block[exponent_at]);
        for (int e = 0; e < 32; ++e) out[e] = scale * e4m3_to_float(block[codes_at + fp8_code_of_32(e)]);
    }
};
static_assert(MXFP8::block_bytes == 1 + 32);

}  // namespace minim
