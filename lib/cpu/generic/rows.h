// SPDX-License-Identifier: Apache-2.0
// Kernels on rows of plain floats: normalisation, addition, narrowing.
#pragma once

#include "cpu/generic/elements.h"
#include "cpu/kernels.h"

namespace minim::cpu::generic {

template <class V>
float sum_squares(const float* x, int64_t n) {
    auto squares = V::zero();
    for_each_vector(n, [&](int64_t i, int64_t count) {
        const auto v = load_up_to<V>(x + i, count);
        squares = V::fma(v, v, squares);
    });
    return V::sum(squares);
}

template <class V>
void normalise(const float* x, int64_t n, float mean_square, const float* weight, float eps, float* h) {
    const auto factor = V::all(1.0F / __builtin_sqrtf(mean_square + eps));
    for_each_vector(n, [&](int64_t i, int64_t count) {
        const auto normalised = V::mul(load_up_to<V>(x + i, count), factor);
        store_up_to<V>(h + i, V::mul(normalised, load_up_to<V>(weight + i, count)), count);
    });
}

template <class V>
void rms_norm(const float* x, int64_t n, const float* weight, float eps, float* h) {
    normalise<V>(x, n, sum_squares<V>(x, n) / static_cast<float>(n), weight, eps, h);
}

template <class V>
void add_scaled(const float* x, float factor, int64_t n, float* y) {
    const auto f = V::all(factor);
    for_each_vector(n, [&](int64_t i, int64_t count) {
        store_up_to<V>(y + i, V::fma(f, load_up_to<V>(x + i, count), load_up_to<V>(y + i, count)), count);
    });
}

template <class V>
void narrow_f16(const float* x, int64_t n, std::byte* out) {
    for_each_vector(n, [&](int64_t i, int64_t count) {
        alignas(64) std::byte halves[32];
        const auto v = load_up_to<V>(x + i, count);
        V::store_f16(count == 16 ? out + 2 * i : halves, v);
        if (count < 16) memcpy(out + 2 * i, halves, 2 * count);
    });
}

}  // namespace minim::cpu::generic
