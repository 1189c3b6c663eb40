// SPDX-License-Identifier: Apache-2.0
// FP8_E4M3_B128: 128 elements of eight bits with a scale. FP8 safetensors folders have one scale for 128 x 128 elements.
//
//   0  scale  f32
//   4  codes  128 bytes, E4M3 (e4m3.h): 32 bytes hold 32 elements, bytes 2i and 2i+1 elements i and 16+i of them, so that the
//             low bytes of sixteen 16-bit words are sixteen elements in order
//   W = scale * e4m3(code)
//
// Pinned by tests/unit/format/gather_test.cpp
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/e4m3.h"
#include "format/format.h"

namespace minim {

// Returns the position of the code of element e in a block.
MINIM_HOST_DEVICE int fp8_code_of_32(int e) {
    return e / 32 * 32 + e % 16 * 2 + e / 16 % 2;
}

struct FP8_E4M3_B128 {
    static constexpr Format format = Format::fp8_e4m3_b128;
    static constexpr int block_elems = 128;
    static constexpr int block_bytes = 132;
    static constexpr int row_header_bytes = 0;
    static constexpr int scale_at = 0;
    static constexpr int codes_at = 4;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float scale = load_f32(block + scale_at);
        for (int e = 0; e < block_elems; ++e) {
            out[e] = scale * e4m3_to_float(block[codes_at + fp8_code_of_32(e)]);
        }
    }
};
static_assert(FP8_E4M3_B128::block_bytes == 4 + 128);

}  // namespace minim
