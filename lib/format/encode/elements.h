// SPDX-License-Identifier: Apache-2.0
// The elements that an encoder works on, and what a choice of codes q for them comes to. With weights u, the error of y = s q is
// sum u (x - s q)^2 = sum u x^2 - 2 s cross + s^2 square; encoders compare it without its first term.
#pragma once

#include <cstdint>

#include "base/platform.h"

namespace minim::encoding {

struct GridNeighbours;

// One row for a kernel of an encoder.
struct RowTask {
    const float* x;  // [n_columns], finite
    const float* u;  // [n_columns], positive, none much below the mean of its block
    int64_t n_columns;
    uint8_t* out;
    float* scratch;  // [row_scratch(n_columns)]
    float factor;    // NVFP4
    bool fast;
    const GridNeighbours* near;  // of a codebook, for a fast search; null: all entries are compared
};

// Floats of scratch memory that a kernel may use for a row.
MINIM_HOST_DEVICE constexpr int64_t row_scratch(int64_t n_columns) {
    return 3 * n_columns;
}

// What a kernel returns for a row that it encoded; else the column of the first block whose scale the format cannot hold.
inline constexpr int64_t k_encoded = -1;

// Elements that share a scale.
struct Elements {
    const float* x;
    const float* u;
    const float* ux;  // u * x, if the search needs it
    int64_t count;
};

template <class V>
struct Sums {
    typename V::F32 cross;   // sum u q x
    typename V::F32 square;  // sum u q^2
};

// Returns the sums for the codes nearest to x * inverse, for each lane's inverse of a scale.
template <class V, class Q>
Sums<V> sums_of_nearest(const Elements& block, typename V::F32 inverse) {
    Sums<V> sums{V::all(0.0F), V::all(0.0F)};
    for (int64_t i = 0; i < block.count; ++i) {
        const auto q = Q::template nearest<V>(V::mul(V::all(block.x[i]), inverse));
        sums.cross = V::add(sums.cross, V::mul(V::all(block.ux[i]), q));
        sums.square = V::add(sums.square, V::mul(V::mul(V::all(block.u[i]), q), q));
    }
    return sums;
}

// Returns the error of scale s without its constant term.
template <class V>
typename V::F32 error_of(const Sums<V>& sums, typename V::F32 s) {
    return V::mul(s, V::sub(V::mul(s, sums.square), V::add(sums.cross, sums.cross)));
}

// Returns 1 / s, 0 for 0.
template <class V>
typename V::F32 inverse_or_zero(typename V::F32 s) {
    const auto zero = V::all(0.0F);
    const auto magnitude = V::max(s, V::sub(zero, s));
    const auto divisor = V::if_less(zero, magnitude, s, V::all(1.0F));
    return V::if_less(zero, magnitude, V::div(V::all(1.0F), divisor), zero);
}

MINIM_HOST_DEVICE float inverse_of(float s) {
    return s != 0.0F ? 1.0F / s : 0.0F;
}

// Returns the lane with the smallest value, the first of equals.
template <class V>
int least_lane(typename V::F32 a, float& least) {
    float lane[8];
    V::store(lane, a);
    int best = 0;
    for (int i = 1; i < 8; ++i) {
        if (lane[i] < lane[best]) best = i;
    }
    least = lane[best];
    return best;
}

template <class V>
float one_lane(typename V::F32 a, int index) {
    float lane[8];
    V::store(lane, a);
    return lane[index];
}

MINIM_HOST_DEVICE void multiply(const float* a, const float* b, int64_t count, float* out) {
    for (int64_t i = 0; i < count; ++i) out[i] = a[i] * b[i];
}

// Returns the element of largest magnitude with its sign, the first of equals.
MINIM_HOST_DEVICE float signed_peak_of(const float* x, int64_t count) {
    float peak = 0.0F;
    for (int64_t i = 0; i < count; ++i) {
        if (__builtin_fabsf(x[i]) > __builtin_fabsf(peak)) peak = x[i];
    }
    return peak;
}

}  // namespace minim::encoding
