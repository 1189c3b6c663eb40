// SPDX-License-Identifier: Apache-2.0
// NVFP4: 64 FP4 numbers with an 8-bit scale for each 16. A factor for the whole tensor, if there is one,
// is a tensor of its own and not applied here.
//
//   0  scales  4 x u8, UE4M3; scale g is for elements 16g … 16g+15
//   4  codes   32 bytes, 8 for each scale: low nibbles the first 8 elements of the 16, high nibbles the last 8
//   W = ue4m3(scale) * e2m1[code]
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/NVFP4.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/format.h"

namespace minim {

struct NVFP4 {
    static constexpr Format format = Format::nvfp4;
    static constexpr int block_elems = 64;
    static constexpr int block_bytes = 36;
    static constexpr int row_header_bytes = 0;
    static constexpr int scales_at = 0;
    static constexpr int codes_at = 4;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        for (int g = 0; g < 4; ++g) {
            const float half_scale = 0.5F * ue4m3_to_float(block[scales_at + g]);
            const uint8_t* codes = block + codes_at + 8 * g;
            for (int i = 0; i < 16; ++i) {
                out[16 * g + i] = half_scale * static_cast<float>(e2m1_doubled(nibble(codes[i & 7], i >> 3)));
            }
        }
    }
};
static_assert(NVFP4::block_bytes == 4 + 32);

}  // namespace minim
