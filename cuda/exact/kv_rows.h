// SPDX-License-Identifier: Apache-2.0
// Writes K or V of one head at one position in the formats of the KV cache: the bytes of format/encode.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "base/platform.h"
#include "format/block_reader.h"
#include "format/encode_block.h"
#include "format/format.h"
#include "format/q4_0.h"
#include "format/q8_0.h"

namespace minim::cuda::exact {

MINIM_HOST_DEVICE void encode_kv_row(Format format, const float* x, int64_t count, uint8_t* row) {
    if (format == Format::f32) {
        memcpy(row, x, count * sizeof(float));
    } else if (format == Format::f16) {
        for (int64_t i = 0; i < count; ++i) store_u16(row + 2 * i, float_to_f16(x[i]));
    } else if (format == Format::bf16) {
        for (int64_t i = 0; i < count; ++i) store_u16(row + 2 * i, float_to_bf16(x[i]));
    } else if (format == Format::q8_0) {
        for (int64_t b = 0; b < count / 32; ++b) encode_block_q8_0(x + 32 * b, row + b * Q8_0::block_bytes);
    } else {
        for (int64_t b = 0; b < count / 32; ++b) encode_block_q4_0(x + 32 * b, row + b * Q4_0::block_bytes);
    }
}

MINIM_HOST_DEVICE float kv_element(Format format, const uint8_t* row, int64_t i) {
    if (format == Format::f32) return load_f32(row + 4 * i);
    if (format == Format::f16) return load_f16(row + 2 * i);
    if (format == Format::bf16) return bf16_to_float(load_u16(row + 2 * i));
    if (format == Format::q8_0) {
        const uint8_t* block = row + i / 32 * Q8_0::block_bytes;
        return load_f16(block + Q8_0::d_at) *
               static_cast<float>(static_cast<int8_t>(block[Q8_0::codes_at + i % 32]));
    }
    const uint8_t* block = row + i / 32 * Q4_0::block_bytes;
    const int codes = block[Q4_0::codes_at + i % 16];
    const int code = (i % 32 < 16 ? codes : codes >> 4) & 15;
    return load_f16(block + Q4_0::d_at) * static_cast<float>(code - 8);
}

}  // namespace minim::cuda::exact
