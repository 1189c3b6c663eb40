// SPDX-License-Identifier: Apache-2.0
// Converts rows of floats to F16 for the tile kernel (linear_tile.h), with a factor for every n_cols columns: x = factor * half, and
// the factor is 1 unless the largest of these columns is at least 2^15 or below 2^-10. Or to BF16, for weights in BF16: it has the range
// of floats, so all factors are 1.
//
// Shape: one warp for n_cols columns, pairs of neighbours in each lane. Layout: for packed weights, within each 16 columns, halves
// 2 c + i and 2 c + 8 + i are columns 4 c + i and 4 c + 2 + i (c = 0 .. 3, i = 0, 1), the order of the fragments that the tile kernel
// makes of four neighbouring codes; for others the order of the row. Bytes moved for each element: 4 in, 2 out. Bound: memory bandwidth,
// or the start of a kernel for the rows of a step.
#pragma once

#include "base/half.h"
#include "cuda/fast/device.h"
#include "cuda/fast/operations.h"

namespace minim::cuda::fast {

// Factors are 2^shift. The limits of shift keep what is between the largest and the smallest factor of a row within floats: sums of
// 2^17 columns of halves below 2^16 stay below 2^49 times 2^80. Inputs up to 2^65 are finite, those from 2^-44 on have all digits.
inline constexpr int k_min_factor_shift = -30;
inline constexpr int k_max_factor_shift = 50;

// Returns the shift for columns whose largest number has these bits, without its sign.
MINIM_HOST_DEVICE constexpr int factor_shift(uint32_t largest) {
    const int exponent = static_cast<int>(largest >> 23) - 127;
    // Infinity and NaN are not scaled, and zeros need not be.
    if (largest == 0 || exponent == 128 || (exponent >= -10 && exponent < 15)) return 0;
    const int shift = exponent - 14;  // the largest becomes 2^14 to 2^15
    return shift < k_min_factor_shift ? k_min_factor_shift
                                      : (shift > k_max_factor_shift ? k_max_factor_shift : shift);
}

// Returns two floats as BF16, the first one lower.
MINIM_DEVICE uint32_t bf16_pair(const float (&pair)[2]) {
    return float_to_bf16(pair[0]) | static_cast<uint32_t>(float_to_bf16(pair[1])) << 16;
}

// Writes the halves and the factor of n_cols columns, of which `count` are there, an even number. All lanes of a warp call it;
// value(c): column c.
template <int n_cols, HalfKind kind, class T, class Value>
MINIM_DEVICE void put_halves(T& t, const Value& value, int count, uint16_t* half, float* factor) {
    constexpr int k_pairs = n_cols / 64;
    const int lane = t.index() % 32;
    float pair[k_pairs][2];
    uint32_t largest = 0;  // as bits, without their signs: infinity is above all numbers, NaN above that
    for (int k = 0; k < k_pairs; ++k) {
        const int column = 64 * k + 2 * lane;
        for (int i = 0; i < 2; ++i) {
            pair[k][i] = column < count ? value(column + i) : 0.0F;
            const uint32_t bits = float_to_bits(pair[k][i]) & 0x7FFFFFFFU;
            largest = bits > largest ? bits : largest;
        }
    }
    const int shift = kind == HalfKind::bf16 ? 0 : factor_shift(t.largest_of_lanes(largest));
    const float inverse = bits_to_float(static_cast<uint32_t>(127 - shift) << 23);
    auto* words = reinterpret_cast<uint32_t*>(half);
    const int place = kind == HalfKind::packed ? lane / 8 * 8 + lane % 2 * 4 + lane % 8 / 2 : lane;
    for (int k = 0; k < k_pairs; ++k) {
        if (64 * k + 2 * lane >= count) continue;
        words[32 * k + place] = kind == HalfKind::bf16
                                    ? bf16_pair(pair[k])
                                    : t.pack_f16(pair[k][0] * inverse, pair[k][1] * inverse);
    }
    if (lane == 0) *factor = bits_to_float(static_cast<uint32_t>(127 + shift) << 23);
}

template <int n_cols>
struct HalveRowsKernel {
    static constexpr int k_threads = 256;
    static constexpr int k_warps = k_threads / 32;

    const float* x;
    int64_t n;
    int64_t cols;
    HalfInputs out;

    Grid grid() const { return {.n_blocks = (n * parts() + k_warps - 1) / k_warps}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t part = int64_t{t.block()} * k_warps + t.index() / 32;
        if (part >= n * parts()) return;  // the whole warp returns
        const int64_t first = part % parts() * n_cols;
        const int64_t at = part / parts() * cols + first;
        const float* from = x + at;
        const auto count = static_cast<int>(cols - first < n_cols ? cols - first : n_cols);
        const auto value = [&](int c) { return from[c]; };
        uint16_t* half = out.half + at;
        float* factor = out.factor + part;
        if (out.kind == HalfKind::packed)
            return put_halves<n_cols, HalfKind::packed>(t, value, count, half, factor);
        if (out.kind == HalfKind::f16)
            return put_halves<n_cols, HalfKind::f16>(t, value, count, half, factor);
        put_halves<n_cols, HalfKind::bf16>(t, value, count, half, factor);
    }

  private:
    MINIM_HOST_DEVICE int64_t parts() const { return (cols + n_cols - 1) / n_cols; }
};

}  // namespace minim::cuda::fast
