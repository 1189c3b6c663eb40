// SPDX-License-Identifier: Apache-2.0
// Parts of the encoders, and the encoders of one block that a device needs for its KV cache. With NaN or infinity the result
// is meaningless.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "base/platform.h"
#include "format/q4_0.h"
#include "format/q8_0.h"

namespace minim {

MINIM_HOST_DEVICE void store_u16(uint8_t* to, uint16_t value) {
    memcpy(to, &value, sizeof(value));
}

MINIM_HOST_DEVICE void store_f16(uint8_t* to, float value) {
    store_u16(to, float_to_f16(value));
}

// Truncates towards zero and clamps to [low, high]; NaN gives low. A plain conversion of a value out of range would be
// undefined.
MINIM_HOST_DEVICE int truncate_clamped(float value, int low, int high) {
    if (!(value > static_cast<float>(low))) return low;
    if (value >= static_cast<float>(high)) return high;
    return static_cast<int>(value);
}

MINIM_HOST_DEVICE float reciprocal_or_zero(float d) {
    return d != 0.0F ? 1.0F / d : 0.0F;
}

MINIM_HOST_DEVICE float largest_magnitude(const float* x, int count) {
    float largest = 0.0F;
    for (int i = 0; i < count; ++i) {
        const float magnitude = std::fabs(x[i]);
        if (largest < magnitude) largest = magnitude;
    }
    return largest;
}

// Returns the element of largest magnitude with its sign, the first of equals.
MINIM_HOST_DEVICE float signed_peak(const float* x, int count) {
    float peak = 0.0F;
    for (int i = 0; i < count; ++i) {
        if (std::fabs(x[i]) > std::fabs(peak)) peak = x[i];
    }
    return peak;
}

// Writes the codes of 32 elements under d = max abs / 127, rounded half away from zero. Returns the unrounded d.
MINIM_HOST_DEVICE float quantise_q8(const float* x, int8_t* q) {
    const float d = largest_magnitude(x, 32) / 127.0F;
    const float inverse = reciprocal_or_zero(d);
    for (int i = 0; i < 32; ++i)
        q[i] = static_cast<int8_t>(truncate_clamped(std::round(x[i] * inverse), -127, 127));
    return d;
}

// Writes codes 0 … 2*zero - 1 around `zero`: the peak gets code 0; its opposite would get 2*zero and is clamped. Returns
// d.
MINIM_HOST_DEVICE float quantise_around_zero(const float* x, int zero, int* codes) {
    const float d = signed_peak(x, 32) / static_cast<float>(-zero);
    const float inverse = reciprocal_or_zero(d);
    for (int i = 0; i < 32; ++i) {
        codes[i] = truncate_clamped(x[i] * inverse + (static_cast<float>(zero) + 0.5F), 0, 2 * zero - 1);
    }
    return d;
}

// Writes 32 codes of 4 bits, the first 16 to the low nibbles.
MINIM_HOST_DEVICE void store_nibbles(const int* codes, uint8_t* to) {
    for (int i = 0; i < 16; ++i) to[i] = static_cast<uint8_t>((codes[i] & 15) | ((codes[i + 16] & 15) << 4));
}

MINIM_HOST_DEVICE void encode_block_q8_0(const float* x, uint8_t* block) {
    store_f16(block + Q8_0::d_at, quantise_q8(x, reinterpret_cast<int8_t*>(block + Q8_0::codes_at)));
}

MINIM_HOST_DEVICE void encode_block_q4_0(const float* x, uint8_t* block) {
    int codes[32];
    store_f16(block + Q4_0::d_at, quantise_around_zero(x, 8, codes));
    store_nibbles(codes, block + Q4_0::codes_at);
}

}  // namespace minim
