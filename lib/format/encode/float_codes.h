// SPDX-License-Identifier: Apache-2.0
// Encoders of blocks of FP4 numbers: NVFP4 with E4M3 scales, MXFP4 with powers of two. Neighbours of the scale that puts the largest
// element on 6 are tried.
#pragma once

#include <cstring>

#include "format/e4m3.h"
#include "format/encode/quantiser.h"
#include "format/encode/scale_search.h"
#include "format/encode/store_codes.h"
#include "format/mxfp4.h"
#include "format/nvfp4.h"

namespace minim::encoding {

// The doubled E2M1 numbers in ascending order, and their codes.
inline constexpr int8_t k_e2m1_ascending[15] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
inline constexpr uint8_t k_e2m1_codes[15] = {15, 14, 13, 12, 11, 10, 9, 0, 1, 2, 3, 4, 5, 6, 7};
inline constexpr NearestValues k_nearest_e2m1 = nearest_values(k_e2m1_ascending, 15);
using E2m1Doubled = TableValues<k_nearest_e2m1>;

// Writes the codes of elements for half of their scale, 0 … 15.
MINIM_HOST_DEVICE void code_e2m1(const float* x, int count, float half_scale, uint8_t* code) {
    const float inverse = inverse_of(half_scale);
    for (int i = 0; i < count; ++i) code[i] = k_e2m1_codes[E2m1Doubled::code(x[i] * inverse)];
}

// Returns the E4M3 code nearest to a positive number, 1 … 126. Ties go to the larger code.
MINIM_HOST_DEVICE int nearest_e4m3(float value) {
    int low = 1;
    int high = 126;
    while (low < high) {
        const int middle = (low + high) / 2;
        const float border = 0.5F * (e4m3_to_float(static_cast<uint8_t>(middle)) +
                                     e4m3_to_float(static_cast<uint8_t>(middle + 1)));
        if (middle < 126 && value >= border) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// Returns the code, or the nearest one of a scale that is positive and finite.
MINIM_HOST_DEVICE int clamped_scale(int code) {
    return code < 1 ? 1 : code > 126 ? 126 : code;
}

// Divides elements by the factor that multiplies all scales.
MINIM_HOST_DEVICE void divide(const float* x, int count, float factor, float* out) {
    for (int i = 0; i < count; ++i) out[i] = x[i] / factor;
}

// Returns the E4M3 code of the scale with the least error for 16 elements; 0 if all are zero.
template <class V>
int search_e4m3_scale(const float* x, const float* u, bool fast) {
    const float peak = __builtin_fabsf(signed_peak_of(x, 16));
    if (peak == 0.0F) return 0;
    float ux[16];
    multiply(u, x, 16, ux);
    const Elements elements{x, u, ux, 16};
    const int first = nearest_e4m3(peak / 6.0F) - 6;
    int best = first;
    float least = 0.0F;
    const int n = fast ? 8 : 16;
    for (int k = 0; k < n; k += 8) {
        float half_scale[8];
        for (int i = 0; i < 8; ++i)
            half_scale[i] = 0.5F * e4m3_to_float(static_cast<uint8_t>(clamped_scale(first + k + i)));
        const auto s = V::load(half_scale);
        const auto sums = sums_of_nearest<V, E2m1Doubled>(elements, inverse_or_zero<V>(s));
        float least_of_eight;
        const int lane = least_lane<V>(error_of<V>(sums, s), least_of_eight);
        if (k > 0 && !(least_of_eight < least)) continue;
        least = least_of_eight;
        best = first + k + lane;
    }
    return clamped_scale(best);
}

// Larger magnitudes exceed the largest E4M3 scale, 448.
MINIM_HOST_DEVICE float largest_nvfp4(float factor) {
    return 6.0F * 448.0F * 1.001F * factor;
}

template <class V>
int64_t encode_nvfp4(const RowTask& row) {
    uint8_t* block = row.out;
    for (int64_t at = 0; at < row.n_columns; at += 64, block += NVFP4::block_bytes) {
        if (__builtin_fabsf(signed_peak_of(row.x + at, 64)) > largest_nvfp4(row.factor)) return at;
        for (int g = 0; g < 4; ++g) {
            float x[16];
            divide(row.x + at + 16 * g, 16, row.factor, x);
            const auto scale = static_cast<uint8_t>(search_e4m3_scale<V>(x, row.u + at + 16 * g, row.fast));
            block[NVFP4::scales_at + g] = scale;
            uint8_t code[16];
            code_e2m1(x, 16, 0.5F * e4m3_to_float(scale), code);
            for (int i = 0; i < 8; ++i) {
                block[NVFP4::codes_at + 8 * g + i] = static_cast<uint8_t>(code[i] | code[8 + i] << 4);
            }
        }
    }
    return k_encoded;
}

// Returns floor(log2 |x|) of a positive number, -127 for subnormal ones.
MINIM_HOST_DEVICE int binary_exponent(float x) {
    return static_cast<int>(float_to_bits(x) >> 23 & 255U) - 127;
}

MINIM_HOST_DEVICE float power_of_two(int exponent) {
    return bits_to_float(static_cast<uint32_t>(exponent + 127) << 23);
}

// Returns the E8M0 code of the scale with the least error for 32 elements, and writes their codes.
template <class V>
uint8_t search_e8m0_scale(const float* x, const float* u, uint8_t* code) {
    const float peak = __builtin_fabsf(signed_peak_of(x, 32));
    memset(code, 0, 32);
    if (peak == 0.0F) return 0;
    // The elements are brought to magnitudes around 1, where squares neither overflow nor vanish. Two steps, as one power may exceed F32.
    const int exponent = binary_exponent(peak);
    float scaled[32];
    float ux[32];
    for (int i = 0; i < 32; ++i)
        scaled[i] = x[i] * power_of_two(-exponent / 2) * power_of_two(-exponent - (-exponent / 2));
    multiply(u, scaled, 32, ux);
    const Elements elements{scaled, u, ux, 32};
    // Half scales for exponents 3 less than that of the peak to 1 less; lanes 0 … 2, the usual one first.
    const float half_scale[8] = {0.125F, 0.0625F, 0.25F, 0.125F, 0.125F, 0.125F, 0.125F, 0.125F};
    const int step[8] = {0, -1, 1, 0, 0, 0, 0, 0};
    const auto s = V::load(half_scale);
    float least;
    const int lane = least_lane<V>(
        error_of<V>(sums_of_nearest<V, E2m1Doubled>(elements, inverse_or_zero<V>(s)), s), least);
    const int wanted = exponent - 2 + step[lane] + 127;
    const int stored = wanted < 0 ? 0 : wanted > 252 ? 252 : wanted;
    // The scale may be one that no E8M0 has, or one with which codes exceed F32: they are made for the one that is stored.
    const float half_stored = power_of_two(stored - wanted) * half_scale[lane];
    code_e2m1(scaled, 32, half_stored, code);
    return static_cast<uint8_t>(stored);
}

template <class V>
int64_t encode_mxfp4(const RowTask& row) {
    uint8_t* block = row.out;
    for (int64_t at = 0; at < row.n_columns; at += 32, block += MXFP4::block_bytes) {
        uint8_t code[32];
        block[MXFP4::exponent_at] = search_e8m0_scale<V>(row.x + at, row.u + at, code);
        put_code4_of_32(code, 32, block + MXFP4::codes_at);
    }
    return k_encoded;
}

}  // namespace minim::encoding
