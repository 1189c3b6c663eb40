// SPDX-License-Identifier: Apache-2.0
// Unquantised weights. A block is one number; F16 is IEEE binary16, BF16 the upper half of an F32.
//
// Pinned by tests/unit/format/decode_test.cpp with tests/data/format/F16.bin, BF16.bin
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"

namespace minim {

struct F32 {
    static constexpr Format format = Format::f32;
    static constexpr int block_elems = 1;
    static constexpr int block_bytes = 4;
    static constexpr int row_header_bytes = 0;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        out[0] = load_f32(block);
    }
};
static_assert(F32::block_bytes == sizeof(float));

struct F16 {
    static constexpr Format format = Format::f16;
    static constexpr int block_elems = 1;
    static constexpr int block_bytes = 2;
    static constexpr int row_header_bytes = 0;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        out[0] = load_f16(block);
    }
};
static_assert(F16::block_bytes == sizeof(uint16_t));

struct BF16 {
    static constexpr Format format = Format::bf16;
    static constexpr int block_elems = 1;
    static constexpr int block_bytes = 2;
    static constexpr int row_header_bytes = 0;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        out[0] = bf16_to_float(load_u16(block));
    }
};
static_assert(BF16::block_bytes == sizeof(uint16_t));

}  // namespace minim
