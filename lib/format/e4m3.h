// SPDX-License-Identifier: Apache-2.0
// FP8 E4M3, the finite-only variant: sign, four exponent bits with bias 7, three mantissa bits; exponent 0 is
// m * 2^-9; no infinity, 0x7F and 0xFF are NaN, the largest value is 448. Also its unsigned use as a block
// scale. Pinned by tests/unit/format/e4m3_test.cpp.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "base/platform.h"

namespace minim {

MINIM_HOST_DEVICE float e4m3_to_float(uint8_t code) {
    const uint32_t sign = static_cast<uint32_t>(code & 0x80U) << 24;
    const uint32_t magnitude = code & 0x7FU;
    if (magnitude == 0x7FU) return bits_to_float(sign | 0x7FC00000U);
    if (magnitude >= 8U) return bits_to_float(sign | ((magnitude << 20) + 0x3C000000U));  // bias 7 to 127
    const float value = static_cast<float>(magnitude) * 0.001953125F;                     // 2^-9
    return bits_to_float(sign | float_to_bits(value));
}

// Returns the code nearest to a number, ties to the even code. Magnitudes above 448 become 448; NaN keeps its sign only.
MINIM_HOST_DEVICE uint8_t float_to_e4m3(float value) {
    const uint32_t bits = float_to_bits(value);
    const uint32_t sign = bits >> 24 & 0x80U;
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) return static_cast<uint8_t>(sign | 0x7FU);
    if (magnitude >= 0x43E00000U) return static_cast<uint8_t>(sign | 0x7EU);  // 448
    if (magnitude < 0x3C800000U) {                                            // below 2^-6: units of 2^-9
        // Adding 2^14 leaves units of 2^-9 as the lowest bits of the sum.
        const float sum = bits_to_float(magnitude) + 16384.0F;
        return static_cast<uint8_t>(sign | (float_to_bits(sum) - 0x46800000U));
    }
    const uint32_t rounded = magnitude + 0x7FFFFU + ((magnitude >> 20) & 1U);
    return static_cast<uint8_t>(sign | ((rounded - 0x3C000000U) >> 20));
}

// Returns a code as an F16 that is 256 times too small: exponent and mantissa are only shifted, which is exact. NaN becomes
// 1.875.
inline constexpr float k_e4m3_half_factor = 256.0F;
MINIM_HOST_DEVICE uint16_t e4m3_as_half(uint8_t code) {
    return static_cast<uint16_t>((code & 0x80U) << 8 | (code & 0x7FU) << 7);
}
// Return bytes 0 and 2 of four codes, and bytes 1 and 3, as pairs of such halves.
MINIM_HOST_DEVICE uint32_t e4m3_as_halves_even(uint32_t codes) {
    return (codes & 0x00800080U) << 8 | (codes & 0x007F007FU) << 7;
}
MINIM_HOST_DEVICE uint32_t e4m3_as_halves_odd(uint32_t codes) {
    return (codes & 0x80008000U) | (codes & 0x7F007F00U) >> 1;
}

// Returns the value of a scale byte of the GGUF NVFP4 block: E4M3 without a sign, bit 7 unused; 0x7F means 0 there.
MINIM_HOST_DEVICE float ue4m3_to_float(uint8_t code) {
    const uint8_t magnitude = code & 0x7FU;
    return magnitude == 0x7FU ? 0.0F : e4m3_to_float(magnitude);
}

}  // namespace minim
