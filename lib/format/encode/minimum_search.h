// SPDX-License-Identifier: Apache-2.0
// The search for scale and minimum of elements that share them: y = s q - m with codes 0 … top. The range from the smallest to the
// largest element is narrowed or widened at its top, at its bottom, or at both; each range chooses codes, and the codes their best
// scale and minimum (two normal equations), twice.
#pragma once

#include <cstdint>

#include "format/encode/scale_search.h"

namespace minim::encoding {

struct MinimumFit {
    float s;
    float m;
    float error;  // of the fit, without sum u x^2
};

// What a choice of codes comes to, besides sum u and sum u x.
template <class V>
struct MinimumSums {
    typename V::F32 q;   // sum u q
    typename V::F32 qq;  // sum u q^2
    typename V::F32 qx;  // sum u q x
};

// Returns the sums for the codes nearest to (x + m) * inverse.
template <class V, int top>
MinimumSums<V> sums_of_codes(const Elements& block, typename V::F32 inverse, typename V::F32 m) {
    MinimumSums<V> sums{V::all(0.0F), V::all(0.0F), V::all(0.0F)};
    const auto zero = V::all(0.0F);
    const auto last = V::all(static_cast<float>(top));
    for (int64_t i = 0; i < block.count; ++i) {
        const auto t = V::mul(V::add(V::all(block.x[i]), m), inverse);
        const auto q = V::round(V::min(V::max(t, zero), last));
        const auto uq = V::mul(V::all(block.u[i]), q);
        sums.q = V::add(sums.q, uq);
        sums.qq = V::add(sums.qq, V::mul(uq, q));
        sums.qx = V::add(sums.qx, V::mul(V::all(block.ux[i]), q));
    }
    return sums;
}

template <class V>
typename V::F32 error_with_minimum(const MinimumSums<V>& sums, float sum_u, float sum_ux, typename V::F32 s,
                                   typename V::F32 m) {
    const auto two = V::all(2.0F);
    const auto of_scale = V::mul(s, V::sub(V::mul(s, sums.qq), V::mul(two, sums.qx)));
    const auto of_minimum = V::mul(m, V::add(V::mul(m, V::all(sum_u)), V::all(2.0F * sum_ux)));
    return V::sub(V::add(of_scale, of_minimum), V::mul(V::mul(two, V::mul(s, m)), sums.q));
}

// Replaces s and m by those that suit the codes best. Without `any_sign`, m is not negative.
template <class V>
void fit_minimum(const MinimumSums<V>& sums, float sum_u, float sum_ux, bool any_sign, typename V::F32& s,
                 typename V::F32& m) {
    const auto zero = V::all(0.0F);
    const auto one = V::all(1.0F);
    const auto all_u = V::all(sum_u);
    const auto all_ux = V::all(sum_ux);
    const auto product = V::mul(sums.qq, all_u);
    const auto determinant = V::sub(product, V::mul(sums.q, sums.q));
    // The codes are all alike: the scale stays.
    const auto too_small = V::mul(product, V::all(1e-6F));
    const auto divisor = V::if_less(too_small, determinant, determinant, one);
    const auto fitted = V::div(V::sub(V::mul(sums.qx, all_u), V::mul(all_ux, sums.q)), divisor);
    s = V::if_less(too_small, determinant, V::max(fitted, zero), s);
    m = V::div(V::sub(V::mul(s, sums.q), all_ux), all_u);
    if (any_sign) return;
    const auto has_codes = V::if_less(zero, sums.qq, sums.qq, one);
    const auto alone = V::if_less(zero, sums.qq, V::max(V::div(sums.qx, has_codes), zero), s);
    s = V::if_less(m, zero, alone, s);
    m = V::max(m, zero);
}

inline constexpr float k_range_fractions[16] = {0.55F, 0.62F, 0.68F,  0.73F, 0.77F, 0.81F, 0.845F, 0.88F,
                                                0.91F, 0.94F, 0.965F, 0.99F, 1.0F,  1.03F, 1.07F,  1.12F};
inline constexpr float k_range_fractions_fast[8] = {0.70F, 0.78F, 0.84F, 0.89F, 0.93F, 0.97F, 1.0F, 1.05F};

// Tries one way of changing the range. `top_share`: how much of the change is at its top. If `stored_as_f16`, s and m are rounded
// before fits are compared, and m may have either sign.
template <class V, int top>
void try_ranges(const Elements& block, float lowest, float range, float top_share, bool stored_as_f16,
                bool fast, float sum_u, float sum_ux, MinimumFit& best) {
    const float* fractions = fast ? k_range_fractions_fast : k_range_fractions;
    const int n_fractions = fast ? 8 : 16;
    for (int i = 0; i < n_fractions; i += 8) {
        const auto fraction = V::load(fractions + i);
        auto s = V::mul(fraction, V::all(range / static_cast<float>(top)));
        const auto cut = V::mul(V::sub(V::all(1.0F), fraction), V::all(range * (1.0F - top_share)));
        auto m = V::sub(V::all(-lowest), cut);
        if (!stored_as_f16) m = V::max(m, V::all(0.0F));
        const int rounds = fast ? 1 : 2;
        for (int round = 0; round < rounds; ++round) {
            fit_minimum<V>(sums_of_codes<V, top>(block, inverse_or_zero<V>(s), m), sum_u, sum_ux,
                           stored_as_f16, s, m);
        }
        if (stored_as_f16) {
            s = V::round_to_f16(s);
            m = V::round_to_f16(m);
        }
        const auto sums = sums_of_codes<V, top>(block, inverse_or_zero<V>(s), m);
        const auto is_whole = V::mul(V::sub(fraction, V::all(1.0F)), V::sub(fraction, V::all(1.0F)));
        const auto preference = V::if_less(V::all(0.0F), is_whole, V::all(1.0F), V::all(k_preference));
        float least;
        const int lane =
            least_lane<V>(V::mul(error_with_minimum<V>(sums, sum_u, sum_ux, s, m), preference), least);
        if (least < best.error) best = {one_lane<V>(s, lane), one_lane<V>(m, lane), least};
    }
}

template <class V, int top>
MinimumFit search_minimum(const Elements& block, bool stored_as_f16, bool fast) {
    float lowest = block.x[0];
    float highest = block.x[0];
    float sum_u = 0.0F;
    float sum_ux = 0.0F;
    for (int64_t i = 0; i < block.count; ++i) {
        lowest = block.x[i] < lowest ? block.x[i] : lowest;
        highest = block.x[i] > highest ? block.x[i] : highest;
        sum_u += block.u[i];
        sum_ux += block.ux[i];
    }
    if (!stored_as_f16 && lowest > 0.0F) lowest = 0.0F;
    MinimumFit best{0.0F, 0.0F, 0.0F};
    if (lowest == 0.0F && highest == 0.0F) return best;
    const float range = highest - lowest;
    try_ranges<V, top>(block, lowest, range, 1.0F, stored_as_f16, fast, sum_u, sum_ux, best);
    try_ranges<V, top>(block, lowest, range, 0.5F, stored_as_f16, fast, sum_u, sum_ux, best);
    if (!fast) try_ranges<V, top>(block, lowest, range, 0.0F, stored_as_f16, fast, sum_u, sum_ux, best);
    return best;
}

}  // namespace minim::encoding
