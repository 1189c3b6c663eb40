// SPDX-License-Identifier: Apache-2.0
// Scales of sub-blocks as whole numbers l under one scale d of the block, or of the row: y = d l q. Sub-blocks come with the scales
// that suit them best. Several d are tried; for the best of them the numbers and their neighbours are tried with codes made anew,
// then d is fitted to the codes, a few times.
//
// An evaluator E knows the sub-blocks:
//
//   E::k_variants               value tables (or shifts) among which a sub-block may choose
//   Sums<V> at(j, variant, s)   the sums of the best codes of sub-block j, for each lane's scale
#pragma once

#include <cstdint>

#include "format/encode/elements.h"
#include "format/encode/quantiser.h"

namespace minim::encoding {

// The numbers first, first + 1 … last as scales. d times `last` is tried as the largest scale, and d times `first`.
template <int first, int last>
struct WholeScales {
    static constexpr float low = first;
    static constexpr float high = last;
    static constexpr float step = 1.0F;
    static constexpr int n_ends = first < 0 ? 2 : 1;
    template <class V>
    static typename V::F32 nearest(typename V::F32 t) {
        return V::round(V::min(V::max(t, V::all(low)), V::all(high)));
    }
};

// The odd numbers from first to last. With a negative first they are symmetrical, so that one end is enough.
template <int first, int last>
struct OddScales {
    static constexpr float low = first;
    static constexpr float high = last;
    static constexpr float step = 2.0F;
    static constexpr int n_ends = 1;
    template <class V>
    static typename V::F32 nearest(typename V::F32 t) {
        const auto inside = V::min(V::max(t, V::all(low)), V::all(high));
        const auto half = V::mul(V::sub(inside, V::all(1.0F)), V::all(0.5F));
        return V::add(V::mul(V::round(half), V::all(2.0F)), V::all(1.0F));
    }
};

// How d is stored: as F16, multiplied by `unit`, a power of two; or as F32.
struct StoredAsF16 {
    float unit;
    template <class V>
    typename V::F32 round(typename V::F32 d) const {
        return V::mul(V::round_to_f16(V::mul(d, V::all(unit))), V::all(1.0F / unit));
    }
    MINIM_HOST_DEVICE bool holds(float d) const {
        const float magnitude = __builtin_fabsf(d * unit);
        return magnitude <= 65504.0F;
    }
};
struct StoredAsF32 {
    template <class V>
    typename V::F32 round(typename V::F32 d) const {
        return d;
    }
    MINIM_HOST_DEVICE bool holds(float /*d*/) const { return true; }
};

// What is chosen for n sub-blocks.
struct BlockScales {
    float d;
    float* l;        // [n]
    float* variant;  // [n]
};

inline constexpr float k_block_fractions[8] = {0.92F, 0.945F, 0.965F, 0.985F, 1.0F, 1.015F, 1.035F, 1.06F};

// Tries the neighbours of each sub-block's number under d. `near`: the number to begin with, which is replaced by the best one, as
// is `variant`. Returns the error, and in `refit` the d that suits the codes best.
template <class V, class S, class E>
float choose_numbers(const E& evaluator, int64_t n, float d, float* near, float* variant, float& refit) {
    alignas(32) static constexpr float k_steps[8] = {-4, -3, -2, -1, 0, 1, 2, 3};
    const auto steps = V::mul(V::load(k_steps), V::all(S::step));
    float error = 0.0F;
    float cross = 0.0F;
    float square = 0.0F;
    for (int64_t j = 0; j < n; ++j) {
        const auto l = V::min(V::max(V::add(V::all(near[j]), steps), V::all(S::low)), V::all(S::high));
        float least = 0.0F;
        float best_l = near[j];
        float best_cross = 0.0F;
        float best_square = 0.0F;
        for (int t = 0; t < E::k_variants; ++t) {
            const auto s = V::mul(V::all(d), l);
            const Sums<V> sums = evaluator.at(j, t, s);
            float least_of_variant;
            const int lane = least_lane<V>(error_of<V>(sums, s), least_of_variant);
            if (t > 0 && !(least_of_variant < least)) continue;
            least = least_of_variant;
            best_l = one_lane<V>(l, lane);
            variant[j] = static_cast<float>(t);
            best_cross = one_lane<V>(sums.cross, lane);
            best_square = one_lane<V>(sums.square, lane);
        }
        near[j] = best_l;
        error += least;
        cross += best_l * best_cross;
        square += best_l * best_l * best_square;
    }
    refit = square > 0.0F ? cross / square : d;
    return error;
}

// Chooses d, the numbers and the variants of n sub-blocks. s[j] and first_variant[j]: the scale and the variant that suit sub-block j
// alone. `spare`: memory for 2 n floats. Returns false if no d that the format stores is large enough.
template <class V, class S, class Stored, class E>
bool choose_block_scales(const E& evaluator, int64_t n, const float* s, const float* first_variant,
                         Stored stored, bool fast, float* spare, BlockScales& out) {
    using F32 = typename V::F32;
    const auto zero = V::all(0.0F);
    const float peak = signed_peak_of(s, n);
    out.d = 0.0F;
    for (int64_t j = 0; j < n; ++j) {
        out.l[j] = S::low;
        out.variant[j] = first_variant[j];
    }
    if (peak == 0.0F) return true;
    const float ends[2] = {S::high, S::low};
    F32 d[2] = {zero, zero};
    F32 error[2] = {zero, zero};
    for (int i = 0; i < S::n_ends; ++i) {
        if (!stored.holds(peak / ends[i])) return false;
        d[i] = stored.template round<V>(V::mul(V::load(k_block_fractions), V::all(peak / ends[i])));
    }
    for (int i = 0; i < S::n_ends; ++i) {
        const auto inverse = inverse_or_zero<V>(d[i]);
        for (int64_t j = 0; j < n; ++j) {
            const auto scale = V::mul(d[i], S::template nearest<V>(V::mul(V::all(s[j]), inverse)));
            const Sums<V> sums = evaluator.at(j, static_cast<int>(first_variant[j]), scale);
            error[i] = V::add(error[i], error_of<V>(sums, scale));
        }
    }
    float lane_error[16];
    float lane_d[16];
    for (int i = 0; i < 2; ++i) {
        V::store(lane_error + 8 * i, error[i]);
        V::store(lane_d + 8 * i, d[i]);
    }
    float* l = spare;
    float* variant = spare + n;
    float least = 0.0F;
    const int n_starts = fast ? 1 : 2;
    for (int start = 0; start < n_starts; ++start) {
        int lane = 0;
        for (int i = 1; i < 8 * S::n_ends; ++i) {
            if (lane_error[i] < lane_error[lane]) lane = i;
        }
        if (!(lane_error[lane] < 0.0F) || !stored.holds(lane_d[lane])) break;
        float now = lane_d[lane];
        lane_error[lane] = 0.0F;
        for (int64_t j = 0; j < n; ++j) {
            l[j] = one_lane<V>(S::template nearest<V>(V::all(s[j] * inverse_of(now))), 0);
            variant[j] = first_variant[j];
        }
        if (fast) {
            for (int64_t j = 0; j < n; ++j) out.l[j] = l[j];
            out.d = now;
            return true;
        }
        for (int round = 0; round < 3; ++round) {
            float refit;
            const float sum = choose_numbers<V, S>(evaluator, n, now, l, variant, refit);
            if (sum < least) {
                least = sum;
                out.d = now;
                for (int64_t j = 0; j < n; ++j) {
                    out.l[j] = l[j];
                    out.variant[j] = variant[j];
                }
            } else if (round > 0) {
                break;
            }
            const float next = one_lane<V>(stored.template round<V>(V::all(refit)), 0);
            if (next == now || !stored.holds(next)) break;
            now = next;
        }
    }
    return true;
}

}  // namespace minim::encoding
