// SPDX-License-Identifier: Apache-2.0
// Half-precision storage types as bits: IEEE binary16 (F16) and bfloat16 (BF16). Widening is exact; narrowing
// rounds to nearest even. Every machine gives the same bits: the code uses integer arithmetic, or an instruction with the
// same results.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/platform.h"

namespace minim {

MINIM_HOST_DEVICE float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

MINIM_HOST_DEVICE uint32_t float_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

MINIM_HOST_DEVICE float bf16_to_float(uint16_t bits) {
    return bits_to_float(static_cast<uint32_t>(bits) << 16);
}

MINIM_HOST_DEVICE uint16_t float_to_bf16(float value) {
    const uint32_t bits = float_to_bits(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);  // quiet NaN
    return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

MINIM_HOST_DEVICE float f16_to_float(uint16_t half) {
#if defined(__CUDA_ARCH__)
    // One instruction; it maps every NaN to the same one.
    if ((half & 0x7FFFU) <= 0x7C00U) {
        float exact;
        asm("cvt.f32.f16 %0, %1;" : "=f"(exact) : "h"(half));
        return exact;
    }
#endif
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
    const uint32_t magnitude = half & 0x7FFFU;
    if (magnitude >= 0x7C00U) return bits_to_float(sign | 0x7F800000U | ((magnitude & 0x3FFU) << 13));
    if (magnitude >= 0x0400U) return bits_to_float(sign | ((magnitude << 13) + 0x38000000U));
    // Subnormal: magnitude * 2^-24, exact in float.
    const float value = static_cast<float>(magnitude) * 5.9604644775390625e-8F;
    return bits_to_float(sign | float_to_bits(value));
}

MINIM_HOST_DEVICE uint16_t float_to_f16(float value) {
    const uint32_t bits = float_to_bits(value);
    const uint32_t sign = (bits >> 16) & 0x8000U;
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) return static_cast<uint16_t>(sign | 0x7E00U);  // NaN
    if (magnitude >= 0x477FF000U)
        return static_cast<uint16_t>(sign | 0x7C00U);  // rounds past 65504: infinity
    if (magnitude >= 0x38800000U) {                    // normal: 2^-14 and up
        const uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
        return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
    }
    if (magnitude < 0x33000000U) return static_cast<uint16_t>(sign);  // below 2^-25: zero
    // Subnormal: the mantissa with its hidden bit, shifted to units of 2^-24.
    const uint32_t shift = 126U - (magnitude >> 23);
    const uint32_t mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
    const uint32_t kept = mantissa >> shift;
    const uint32_t rest = mantissa & ((1U << shift) - 1U);
    const uint32_t halfway = 1U << (shift - 1U);
    const uint32_t up = (rest > halfway || (rest == halfway && (kept & 1U) != 0U)) ? 1U : 0U;
    return static_cast<uint16_t>(sign | (kept + up));
}

}  // namespace minim
