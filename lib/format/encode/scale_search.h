// SPDX-License-Identifier: Apache-2.0
// The search for the scale of elements that share one: y = s q with q from a quantiser. The element of largest magnitude is put
// at each end of the table, or a little outside or inside of it; each such scale chooses codes, and the codes their best scale, twice.
#pragma once

#include <cstdint>

#include "format/encode/elements.h"

namespace minim::encoding {

struct ScaleFit {
    float s;
    float gain;  // what the fit explains of sum u x^2
};

// Fractions of the scale that puts the peak on the end of the table.
inline constexpr float k_scale_fractions[24] = {0.65F,  0.68F, 0.71F, 0.735F, 0.76F,  0.78F, 0.80F,  0.82F,
                                                0.84F,  0.86F, 0.88F, 0.90F,  0.915F, 0.93F, 0.945F, 0.96F,
                                                0.975F, 0.99F, 1.0F,  1.01F,  1.03F,  1.05F, 1.08F,  1.13F};
inline constexpr float k_scale_fractions_fast[8] = {0.72F, 0.79F, 0.84F, 0.89F, 0.93F, 0.97F, 1.0F, 1.04F};

// Elements that are all alike fit exactly with every code, and rounding would choose one. This is more than rounding: the peak at
// the first end of the table wins, for all sub-blocks of a block.
inline constexpr float k_preference = 1.000002F;

// Returns the best of the fits that each lane's inverse of a scale leads to.
template <class V, class Q>
ScaleFit best_fit(const Elements& block, typename V::F32 inverse, typename V::F32 preference, int rounds) {
    const auto zero = V::all(0.0F);
    Sums<V> sums = sums_of_nearest<V, Q>(block, inverse);
    for (int round = 1; round < rounds; ++round) {
        const auto cross = V::if_less(zero, V::mul(sums.cross, sums.cross), sums.cross, V::all(1.0F));
        sums = sums_of_nearest<V, Q>(block, V::div(sums.square, cross));
    }
    const auto square = V::if_less(zero, sums.square, sums.square, V::all(1.0F));
    const auto s = V::div(sums.cross, square);
    float least;
    const int lane = least_lane<V>(V::sub(zero, V::mul(V::mul(s, sums.cross), preference)), least);
    return {one_lane<V>(s, lane), -least};
}

template <class V, class Q>
ScaleFit search_scale(const Elements& block, bool fast) {
    const float peak = signed_peak_of(block.x, block.count);
    ScaleFit best{0.0F, 0.0F};
    if (peak == 0.0F) return best;
    const float* fractions = fast ? k_scale_fractions_fast : k_scale_fractions;
    const int n_fractions = fast ? 8 : 24;
    for (const float end : {Q::low, Q::high}) {
        for (int i = 0; i < n_fractions; i += 8) {
            const auto fraction = V::load(fractions + i);
            const auto scale = V::mul(fraction, V::all(peak / end));
            const auto is_whole = V::mul(V::sub(fraction, V::all(1.0F)), V::sub(fraction, V::all(1.0F)));
            const auto preference =
                V::if_less(V::all(0.0F), is_whole, V::all(1.0F), V::all(end == Q::low ? k_preference : 1.0F));
            const ScaleFit fit = best_fit<V, Q>(block, V::div(V::all(1.0F), scale), preference, fast ? 1 : 2);
            if (fit.gain > best.gain) best = fit;
        }
    }
    return best;
}

}  // namespace minim::encoding
