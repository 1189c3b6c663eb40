// SPDX-License-Identifier: Apache-2.0
// Encoders of the rows of quantised folders: FP4 numbers, and integers with and without zeros.
#pragma once

#include <cstring>

#include "format/encode/float_codes.h"
#include "format/encode/folders.h"
#include "format/encode/scale_search.h"

namespace minim::encoding {

// Codes of 4 bits in order, the even one in the low half.
MINIM_HOST_DEVICE void put_codes_in_order(const uint8_t* code, int count, uint8_t* to) {
    for (int i = 0; i < count; i += 2) to[i / 2] = static_cast<uint8_t>(code[i] | code[i + 1] << 4);
}

template <class V>
int64_t encode_nvfp4_folder_row(const RowTask& row, uint8_t* codes, uint8_t* scales) {
    for (int64_t at = 0; at < row.n_columns; at += 16) {
        if (__builtin_fabsf(signed_peak_of(row.x + at, 16)) > largest_nvfp4(row.factor)) return at;
        float x[16];
        divide(row.x + at, 16, row.factor, x);
        const auto scale = static_cast<uint8_t>(search_e4m3_scale<V>(x, row.u + at, row.fast));
        scales[at / 16] = scale;
        uint8_t code[16];
        code_e2m1(x, 16, 0.5F * e4m3_to_float(scale), code);
        put_codes_in_order(code, 16, codes + at / 2);
    }
    return k_encoded;
}

template <class V>
int64_t encode_mxfp4_folder_row(const RowTask& row, uint8_t* codes, uint8_t* scales) {
    for (int64_t at = 0; at < row.n_columns; at += 32) {
        uint8_t code[32];
        scales[at / 32] = search_e8m0_scale<V>(row.x + at, row.u + at, code);
        put_codes_in_order(code, 32, codes + at / 2);
    }
    return k_encoded;
}

// ---- integers ----

// The range of codes, relative to a zero, and the scale that just holds a group.
struct IntegerRange {
    float lowest;  // of the elements, 0 at most
    float scale;
    float first;  // code
    float last;
};

template <class V>
typename V::F32 rounded_scale(ScaleType type, typename V::F32 s) {
    if (type == ScaleType::f16) return V::round_to_f16(s);
    if (type == ScaleType::f32) return s;
    float lane[8];
    V::store(lane, s);
    for (float& one : lane) one = bf16_to_float(float_to_bf16(one));
    return V::load(lane);
}

// Returns the sums of the codes nearest to x * inverse + zero.
template <class V>
Sums<V> sums_of_integers(const Elements& block, const IntegerRange& range, typename V::F32 inverse,
                         typename V::F32 zero) {
    const auto first = V::sub(V::all(range.first), zero);
    const auto last = V::sub(V::all(range.last), zero);
    Sums<V> sums{V::all(0.0F), V::all(0.0F)};
    for (int64_t i = 0; i < block.count; ++i) {
        const auto q = V::round(V::min(V::max(V::mul(V::all(block.x[i]), inverse), first), last));
        const auto uq = V::mul(V::all(block.u[i]), q);
        sums.cross = V::add(sums.cross, V::mul(uq, V::all(block.x[i])));
        sums.square = V::add(sums.square, V::mul(uq, q));
    }
    return sums;
}

// Returns the zero that puts the lowest element on the first code.
template <class V>
typename V::F32 zero_of(const IntegerRange& range, bool with_zeros, typename V::F32 inverse) {
    if (!with_zeros) return V::all(0.0F);
    const auto wanted = V::mul(V::all(-range.lowest), inverse);
    return V::round(V::min(V::max(wanted, V::all(0.0F)), V::all(range.last)));
}

struct IntegerFit {
    float scale;
    float zero;
    float error;
};

inline constexpr float k_integer_fractions[24] = {0.6500F, 0.6674F, 0.6848F, 0.7022F, 0.7196F, 0.7370F,
                                                  0.7543F, 0.7717F, 0.7891F, 0.8065F, 0.8239F, 0.8413F,
                                                  0.8587F, 0.8761F, 0.8935F, 0.9109F, 0.9283F, 0.9457F,
                                                  0.9630F, 0.9804F, 0.9978F, 1.0152F, 1.0326F, 1.0500F};
inline constexpr float k_integer_neighbours[8] = {0.985F,  0.99F,   0.9935F, 0.9965F,
                                                  1.0035F, 1.0065F, 1.01F,   1.015F};

// Tries eight scales; each is fitted once to the codes that it gives, and rounded before errors are compared.
template <class V>
void try_integers(const Elements& block, const IntegerRange& range, const IntegerGroups& groups,
                  typename V::F32 wanted, IntegerFit& best) {
    const auto scale = rounded_scale<V>(groups.scale_type, wanted);
    const auto inverse = inverse_or_zero<V>(scale);
    const auto zero = zero_of<V>(range, groups.with_zeros, inverse);
    const Sums<V> sums = sums_of_integers<V>(block, range, inverse, zero);
    const auto has_codes = V::if_less(V::all(0.0F), sums.square, sums.square, V::all(1.0F));
    const auto fitted =
        rounded_scale<V>(groups.scale_type, V::max(V::div(sums.cross, has_codes), V::all(0.0F)));
    const Sums<V> again = sums_of_integers<V>(block, range, inverse_or_zero<V>(fitted), zero);
    const typename V::F32 tried[2] = {scale, fitted};
    const typename V::F32 errors[2] = {error_of<V>(sums, scale), error_of<V>(again, fitted)};
    for (int i = 0; i < 2; ++i) {
        float least;
        const int lane = least_lane<V>(errors[i], least);
        if (least < best.error) best = {one_lane<V>(tried[i], lane), one_lane<V>(zero, lane), least};
    }
}

// Tries scales from 0.65 to 1.05 of the one that just holds the group, then the neighbours of the best.
template <class V>
IntegerFit search_integers(const Elements& block, const IntegerRange& range, const IntegerGroups& groups,
                           bool fast) {
    IntegerFit best{0.0F, 0.0F, 0.0F};
    for (int k = fast ? 16 : 0; k < 24; k += 8) {
        try_integers<V>(block, range, groups, V::mul(V::load(k_integer_fractions + k), V::all(range.scale)),
                        best);
    }
    if (!fast) {
        try_integers<V>(block, range, groups, V::mul(V::load(k_integer_neighbours), V::all(best.scale)),
                        best);
    }
    return best;
}

template <class V>
int64_t encode_integer_row(const RowTask& row, const IntegerGroups& groups, uint8_t* codes, float* scales,
                           uint8_t* zeros) {
    const int64_t group = groups.group > 0 ? groups.group : row.n_columns;
    const auto steps = static_cast<float>((1 << groups.bits) - 1);
    for (int64_t at = 0; at < row.n_columns; at += group) {
        const float* x = row.x + at;
        float lowest = 0.0F;
        float highest = 0.0F;
        for (int64_t i = 0; i < group; ++i) {
            lowest = x[i] < lowest ? x[i] : lowest;
            highest = x[i] > highest ? x[i] : highest;
        }
        const float peak = -lowest > highest ? -lowest : highest;
        // Keeps sums of squares finite, and scales that are rounded to F16.
        if (peak > (groups.scale_type == ScaleType::f16 ? 65504.0F : 1e15F)) return at;
        IntegerRange range{lowest, 0.0F, 0.0F, steps};
        if (groups.with_zeros) {
            range.scale = (highest - lowest) / steps;
        } else {
            range.scale = peak * 2.0F / steps;
            range.first = -(steps + 1.0F) / 2.0F;
            range.last = (steps - 1.0F) / 2.0F;
        }
        const Elements block{x, row.u + at, nullptr, group};
        const IntegerFit fit = search_integers<V>(block, range, groups, row.fast);
        const float inverse = inverse_of(fit.scale);
        for (int64_t i = 0; i < group; ++i) {
            const float q =
                round_to_even(clamped(x[i] * inverse, range.first - fit.zero, range.last - fit.zero));
            codes[at + i] = static_cast<uint8_t>(static_cast<int>(q + fit.zero));
        }
        scales[at / group] = fit.scale;
        if (groups.with_zeros) zeros[at / group] = static_cast<uint8_t>(static_cast<int>(fit.zero));
    }
    return k_encoded;
}

}  // namespace minim::encoding
