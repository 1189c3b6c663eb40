// SPDX-License-Identifier: Apache-2.0
// The codes of FP8 E4M3, for test models.
#pragma once

#include <cstdint>

#include "base/half.h"

namespace minim {

// Returns the nearest code, ties to even; magnitudes beyond 448, infinity included, become 448; NaN stays NaN.
inline uint8_t float_to_e4m3_saturated(float value) {
    const uint32_t bits = float_to_bits(value);
    const uint32_t sign = (bits >> 24) & 0x80U;
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) return static_cast<uint8_t>(sign | 0x7FU);   // NaN
    if (magnitude >= 0x43E00000U) return static_cast<uint8_t>(sign | 0x7EU);  // 448 and up
    if (magnitude >= 0x3C800000U) {                                           // normal: 2^-6 and up
        const uint32_t rounded = magnitude + 0x7FFFFU + ((magnitude >> 20) & 1U);
        return static_cast<uint8_t>(sign | ((rounded - 0x3C000000U) >> 20));
    }
    // Subnormal: in 16384 + x the last mantissa bit is 2^-9, so the addition does the rounding.
    const uint32_t code = float_to_bits(bits_to_float(magnitude) + 16384.0F) - float_to_bits(16384.0F);
    return static_cast<uint8_t>(sign | code);
}

}  // namespace minim
