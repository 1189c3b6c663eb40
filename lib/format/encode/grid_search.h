// SPDX-License-Identifier: Apache-2.0
// The search among the entries of a codebook for a group of elements: y = s g with an entry g. With weights u, the error of an entry is
// sum u x^2 - 2 s p + s^2 q, with p = sum u x g and q = sum u g^2, which do not depend on s. So both are computed once for the whole
// codebook, the best entry is found for each of some scales, and all that follows chooses among these candidates.
//
// Entries are magnitudes, for |x|, unless the codebook has signs. If the number of negative elements must be even and is odd, one
// element gets the wrong sign: the one that costs least, 4 s u |x| g. This lowers p of the entry by 2 min (u |x| g).
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/encode/elements.h"
#include "format/encode/grid_neighbours.h"
#include "format/grids.h"

namespace minim::encoding {

inline constexpr int k_max_candidates = 16;

// A codebook by positions.
template <int n, int dims>
struct Columns {
    float value[dims][n];
};

template <int n, int dims, typename Point>
constexpr Columns<n, dims> columns_of(const Table<Point, static_cast<size_t>(n)>& entries) {
    static_assert(sizeof(Point) == dims);
    Columns<n, dims> columns{};
    for (int entry = 0; entry < n; ++entry) {
        for (int i = 0; i < dims; ++i)
            columns.value[i][entry] = static_cast<int8_t>(entries.data[entry] >> (8 * i) & 255U);
    }
    return columns;
}

inline constexpr auto k_iq2xxs_columns = columns_of<256, 8>(codebooks::k_iq2xxs);
inline constexpr auto k_iq2xs_columns = columns_of<512, 8>(codebooks::k_iq2xs);
inline constexpr auto k_iq2s_columns = columns_of<1024, 8>(codebooks::k_iq2s);
inline constexpr auto k_iq3xxs_columns = columns_of<256, 4>(codebooks::k_iq3xxs);
inline constexpr auto k_iq3s_columns = columns_of<512, 4>(codebooks::k_iq3s);
inline constexpr auto k_iq1s_columns = columns_of<2048, 8>(codebooks::k_iq1s);

// The best entry of a group for each of the scales tried.
struct Candidates {
    float p[k_max_candidates];
    float q[k_max_candidates];
    int32_t index[k_max_candidates];
};

// Computes p (less what a wrong sign costs, if `flip`) and q of all entries.
template <class V, int n, int dims>
void sums_of_entries(const Columns<n, dims>& columns, const float* u, const float* ux, bool flip, float* p,
                     float* q) {
    for (int entry = 0; entry < n; entry += 8) {
        auto sum_p = V::all(0.0F);
        auto sum_q = V::all(0.0F);
        auto cheapest = V::all(3e38F);
        for (int i = 0; i < dims; ++i) {
            const auto g = V::load(columns.value[i] + entry);
            const auto term = V::mul(V::all(ux[i]), g);
            sum_p = V::add(sum_p, term);
            sum_q = V::add(sum_q, V::mul(V::mul(V::all(u[i]), g), g));
            if (flip) cheapest = V::min(cheapest, term);
        }
        if (flip) sum_p = V::sub(sum_p, V::add(cheapest, cheapest));
        V::store(p + entry, sum_p);
        V::store(q + entry, sum_q);
    }
}

// Finds the entry with the least s q - 2 p for each of n_scales positive scales s, a multiple of 4.
template <class V>
void best_entries(const float* p, const float* q, int n, const float* scales, int n_scales,
                  Candidates& best) {
    alignas(32) static constexpr float k_lanes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int k = 0; k < n_scales; k += 4) {
        typename V::F32 s[4];
        typename V::F32 least[4];
        typename V::F32 at[4];
        for (int i = 0; i < 4; ++i) {
            s[i] = V::all(scales[k + i]);
            least[i] = V::all(3e38F);
            at[i] = V::all(0.0F);
        }
        auto index = V::load(k_lanes);
        for (int entry = 0; entry < n; entry += 8) {
            const auto one_p = V::load(p + entry);
            const auto two_p = V::add(one_p, one_p);
            const auto entry_q = V::load(q + entry);
            for (int i = 0; i < 4; ++i) {
                const auto cost = V::sub(V::mul(s[i], entry_q), two_p);
                at[i] = V::if_less(cost, least[i], index, at[i]);
                least[i] = V::min(cost, least[i]);
            }
            index = V::add(index, V::all(8.0F));
        }
        for (int i = 0; i < 4; ++i) {
            float cost;
            const int lane = least_lane<V>(least[i], cost);
            const auto entry = static_cast<int32_t>(one_lane<V>(at[i], lane));
            best.index[k + i] = entry;
            best.p[k + i] = p[entry];
            best.q[k + i] = q[entry];
        }
    }
}

// The numbers of the patterns nearest to x / s - shift, for each lane's scale s.
template <class V, int dims>
typename V::F32 patterns_of(const GridNeighbours& near, const float* x, float shift, typename V::F32 s) {
    // Scales of the smallest numbers have no finite inverse.
    const auto inverse = V::min(V::div(V::all(1.0F), s), V::all(3e38F));
    const auto n_levels = V::all(near.last_level + 1.0F);
    const auto last = V::all(near.last_level);
    const auto factor = V::mul(inverse, V::all(near.levels_per_unit));
    const auto offset = V::all((shift + near.lowest) * near.levels_per_unit);
    auto pattern = V::all(0.0F);
    for (int i = dims - 1; i >= 0; --i) {
        const auto t = V::sub(V::mul(V::all(x[i]), factor), offset);
        const auto level = V::round(V::min(V::max(t, V::all(0.0F)), last));
        pattern = V::add(V::mul(pattern, n_levels), level);
    }
    return pattern;
}

// The best of some entries for each lane's scale.
template <class V>
struct NearEntries {
    typename V::F32 cost;  // s q - 2 p
    typename V::F32 p;
    typename V::F32 q;
    typename V::F32 index;

    void compare(typename V::F32 s, typename V::F32 p_, typename V::F32 q_, typename V::F32 index_) {
        const auto cost_ = V::sub(V::mul(s, q_), V::add(p_, p_));
        p = V::if_less(cost_, cost, p_, p);
        q = V::if_less(cost_, cost, q_, q);
        index = V::if_less(cost_, cost, index_, index);
        cost = V::min(cost_, cost);
    }
    void store(Candidates& to, int32_t first_index) const {
        float indices[8];
        V::store(to.p, p);
        V::store(to.q, q);
        V::store(indices, index);
        for (int k = 0; k < 8; ++k) to.index[k] = static_cast<int32_t>(indices[k]) + first_index;
    }
};

// Finds the best of the entries near a group of elements for each lane's scale s: `as_is`, and `flipped`, with one sign that is wrong.
template <class V, int n, int dims>
void near_entries(const Columns<n, dims>& columns, const GridNeighbours& near, const float* x, const float* u,
                  const float* ux, typename V::F32 s, NearEntries<V>& as_is, NearEntries<V>& flipped) {
    const auto pattern = patterns_of<V, dims>(near, x, 0.0F, s);
    const auto zero = V::all(0.0F);
    as_is = flipped = {V::all(3e38F), zero, zero, zero};
    for (int k = 0; k < k_neighbours; ++k) {
        const auto index = V::lookup(near.entries + k * near.n_patterns, pattern);
        auto p = zero;
        auto q = zero;
        auto cheapest = V::all(3e38F);
        for (int i = 0; i < dims; ++i) {
            const auto g = V::lookup(columns.value[i], index);
            const auto term = V::mul(V::all(ux[i]), g);
            p = V::add(p, term);
            q = V::add(q, V::mul(V::mul(V::all(u[i]), g), g));
            cheapest = V::min(cheapest, term);
        }
        as_is.compare(s, p, q, index);
        flipped.compare(s, V::sub(p, V::add(cheapest, cheapest)), q, index);
    }
}

// The same for entries with signs, to all values of which `shift` is added. They are looked for with two shifts, so fewer are compared.
template <class V, int n, int dims>
NearEntries<V> near_shifted_entries(const Columns<n, dims>& columns, const GridNeighbours& near,
                                    const float* x, const float* u, const float* ux, float shift,
                                    typename V::F32 s) {
    const auto pattern = patterns_of<V, dims>(near, x, shift, s);
    const auto zero = V::all(0.0F);
    NearEntries<V> best = {V::all(3e38F), zero, zero, zero};
    for (int k = 0; k < k_shifted_neighbours; ++k) {
        const auto index = V::lookup(near.entries + k * near.n_patterns, pattern);
        auto p = zero;
        auto q = zero;
        for (int i = 0; i < dims; ++i) {
            const auto g = V::add(V::lookup(columns.value[i], index), V::all(shift));
            p = V::add(p, V::mul(V::all(ux[i]), g));
            q = V::add(q, V::mul(V::mul(V::all(u[i]), g), g));
        }
        best.compare(s, p, q, index);
    }
    return best;
}

// The best candidate of a group for each lane's scale.
template <class V>
struct BestCandidate {
    typename V::F32 cost;  // s q - 2 p
    typename V::F32 p;
    typename V::F32 q;
};

template <class V>
BestCandidate<V> best_candidate(const Candidates& candidates, int count, typename V::F32 s) {
    BestCandidate<V> best{V::all(3e38F), V::all(0.0F), V::all(0.0F)};
    for (int k = 0; k < count; ++k) {
        const auto p = V::all(candidates.p[k]);
        const auto q = V::all(candidates.q[k]);
        const auto cost = V::sub(V::mul(s, q), V::add(p, p));
        best.p = V::if_less(cost, best.cost, p, best.p);
        best.q = V::if_less(cost, best.cost, q, best.q);
        best.cost = V::min(cost, best.cost);
    }
    return best;
}

// Returns the number of the best candidate for a scale.
MINIM_HOST_DEVICE int best_candidate_for(const Candidates& candidates, int count, float s, float& cost) {
    int best = 0;
    cost = 3e38F;
    for (int k = 0; k < count; ++k) {
        const float cost_k = s * candidates.q[k] - 2.0F * candidates.p[k];
        if (cost_k < cost) {
            cost = cost_k;
            best = k;
        }
    }
    return best;
}

}  // namespace minim::encoding
