// SPDX-License-Identifier: Apache-2.0
// MXFP4: 32 FP4 numbers under one power of two.
//
//   0  x      u8, an E8M0 exponent
//   1  codes  16 bytes: low nibbles elements 0-15, high nibbles elements 16-31
//   W = 2^(x - 127) * e2m1[code]
//
// x = 0 makes every weight a subnormal float; x = 255 is an ordinary exponent here, as in the upstream
// decoder.
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/MXFP4.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/e2m1.h"
#include "format/format.h"

namespace minim {

struct MXFP4 {
    static constexpr Format format = Format::mxfp4;
    static constexpr int block_elems = 32;
    static constexpr int block_bytes = 17;
    static constexpr int row_header_bytes = 0;
    static constexpr int exponent_at = 0;
    static constexpr int codes_at = 1;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float half_scale = e8m0_half_to_float(block[exponent_at]);
        for (int e = 0; e < 32; ++e) {
            out[e] = half_scale * static_cast<float>(e2m1_doubled(code4_of_32(block + codes_at, e)));
        }
    }
};
static_assert(MXFP4::block_bytes == 1 + 16);

}  // namespace minim
