// Keys and values of one head at one position, in the formats of the KV cache: the bytes of format/encode.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "base/platform.h"
#include "format/block_reader.h"
#include "format/format.h"
#include "format/q4_0.h"
#include "format/q8_0.h"

namespace minim::cuda::exact {

MINIM_HOST_DEVICE void put_u16(uint8_t* to, uint16_t value) {
    memcpy(to, &value, sizeof(value));
}

// Towards zero, into [low, high]; NaN gives low.
MINIM_HOST_DEVICE int truncate_clamped(float value, int low, int high) {
    if (!(value > static_cast<float>(low))) return low;
    return value >= static_cast<float>(high) ? high : static_cast<int>(value);
}

MINIM_HOST_DEVICE void encode_q8_0(const float* x, uint8_t* block) {
    float largest = 0.0F;
    for (int i = 0; i < 32; ++i) largest = largest < std::fabs(x[i]) ? std::fabs(x[i]) : largest;
    const float d = largest / 127.0F;
    const float inverse = d != 0.0F ? 1.0F / d : 0.0F;
    put_u16(block + Q8_0::d_at, float_to_f16(d));
    for (int i = 0; i < 32; ++i)
        block[Q8_0::codes_at + i] =
            static_cast<uint8_t>(truncate_clamped(std::round(x[i] * inverse), -127, 127));
}

MINIM_HOST_DEVICE void encode_q4_0(const float* x, uint8_t* block) {
    float peak = 0.0F;
    for (int i = 0; i < 32; ++i) peak = std::fabs(x[i]) > std::fabs(peak) ? x[i] : peak;
    const float d = peak / -8.0F;
    const float inverse = d != 0.0F ? 1.0F / d : 0.0F;
    put_u16(block + Q4_0::d_at, float_to_f16(d));
    const auto code = [&](int i) { return truncate_clamped(x[i] * inverse + 8.5F, 0, 15); };
    for (int i = 0; i < 16; ++i)
        block[Q4_0::codes_at + i] = static_cast<uint8_t>(code(i) | code(i + 16) << 4);
}

MINIM_HOST_DEVICE void encode_kv_row(Format format, const float* x, int64_t count, uint8_t* row) {
    if (format == Format::f32) {
        memcpy(row, x, static_cast<size_t>(count) * sizeof(float));
    } else if (format == Format::f16) {
        for (int64_t i = 0; i < count; ++i) put_u16(row + 2 * i, float_to_f16(x[i]));
    } else if (format == Format::bf16) {
        for (int64_t i = 0; i < count; ++i) put_u16(row + 2 * i, float_to_bf16(x[i]));
    } else if (format == Format::q8_0) {
        for (int64_t b = 0; b < count / 32; ++b) encode_q8_0(x + 32 * b, row + b * Q8_0::block_bytes);
    } else {
        for (int64_t b = 0; b < count / 32; ++b) encode_q4_0(x + 32 * b, row + b * Q4_0::block_bytes);
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
