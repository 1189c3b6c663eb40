// SPDX-License-Identifier: Apache-2.0
// exp and functions made of it, within 2 units in the last place of the exact value, with the same bits on every machine.
#pragma once

#include "cpu/generic/elements.h"
#include "cpu/kernels.h"

namespace minim::cpu::generic {

// Returns the nearest whole number, halves to even, for |x| < 2^22: in floats near 1.5 * 2^23, the last mantissa bit is worth 1.
template <class V>
typename V::F32 round_half_even(typename V::F32 x) {
    const auto magic = V::all(12582912.0F);
    return V::sub(V::add(x, magic), magic);
}

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. ln 2 is split so that n * high is exact; the
// series of exp(r) up to r^7 has an error of 5e-9. 2^n is applied in two factors, so that subnormal results round once and
// overflow gives infinity.
template <class V>
typename V::F32 exp(typename V::F32 x) {
    // Beyond these limits, the result is infinity or 0 anyway. The order of the operands lets NaN pass.
    x = V::min(V::all(89.0F), V::max(V::all(-104.0F), x));
    const auto n = round_half_even<V>(V::mul(x, V::all(1.44269504F)));
    auto r = V::fma(n, V::all(-0.693359375F), x);
    r = V::fma(n, V::all(2.12194440e-4F), r);

    auto p = V::all(1.0F / 5040.0F);
    p = V::fma(p, r, V::all(1.0F / 720.0F));
    p = V::fma(p, r, V::all(1.0F / 120.0F));
    p = V::fma(p, r, V::all(1.0F / 24.0F));
    p = V::fma(p, r, V::all(1.0F / 6.0F));
    p = V::fma(p, r, V::all(0.5F));
    p = V::fma(p, r, V::all(1.0F));
    p = V::fma(p, r, V::all(1.0F));

    const auto half = round_half_even<V>(V::mul(n, V::all(0.5F)));
    return V::mul(V::mul(p, V::power_of_two(half)), V::power_of_two(V::sub(n, half)));
}

template <class V>
typename V::F32 one_plus_exp_of_minus(typename V::F32 z) {
    return V::add(V::all(1.0F), exp<V>(V::sub(V::zero(), z)));
}

template <class V>
void sigmoid(const float* x, int64_t n, float* y) {
    for_each_vector(n, [&](int64_t i, int64_t count) {
        const auto z = load_up_to<V>(x + i, count);
        store_up_to<V>(y + i, V::div(V::all(1.0F), one_plus_exp_of_minus<V>(z)), count);
    });
}

// gate / (1 + exp(-gate)) * up
template <class V>
void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
    for_each_vector(n, [&](int64_t i, int64_t count) {
        const auto z = load_up_to<V>(gate + i, count);
        const auto silu = V::div(z, one_plus_exp_of_minus<V>(z));
        store_up_to<V>(out + i, V::mul(silu, load_up_to<V>(up + i, count)), count);
    });
}

// z / (1 + exp(-alpha z)) * (u + 1), z = min(gate, limit), u = up between -limit and limit. The order of the operands lets NaN pass.
template <class V>
void clamped_silu_mul(const float* gate, const float* up, int64_t n, float alpha, float limit, float* out) {
    const auto most = V::all(limit);
    const auto least = V::all(-limit);
    for_each_vector(n, [&](int64_t i, int64_t count) {
        const auto z = V::min(most, load_up_to<V>(gate + i, count));
        const auto u = V::min(most, V::max(least, load_up_to<V>(up + i, count)));
        const auto silu = V::div(z, one_plus_exp_of_minus<V>(V::mul(V::all(alpha), z)));
        store_up_to<V>(out + i, V::mul(silu, V::add(u, V::all(1.0F))), count);
    });
}

template <class V>
SoftmaxTotals softmax_exp(float* x, int64_t n) {
    constexpr float k_minus_infinity = -__builtin_inff();
    auto largest_lanes = V::all(k_minus_infinity);
    const auto load_padded = [&](int64_t i, int64_t count) {
        return count == 16 ? load<V>(x + i) : load_part<V>(x + i, count, k_minus_infinity);
    };
    for_each_vector(
        n, [&](int64_t i, int64_t count) { largest_lanes = V::max(largest_lanes, load_padded(i, count)); });
    float lanes[16];
    V::store(lanes, largest_lanes);
    float largest = lanes[0];
    for (const float lane : lanes) largest = lane > largest ? lane : largest;

    auto sum = V::zero();
    for_each_vector(n, [&](int64_t i, int64_t count) {
        const auto e = exp<V>(V::sub(load_padded(i, count), V::all(largest)));
        sum = V::add(sum, e);
        store_up_to<V>(x + i, e, count);
    });
    return {largest, V::sum(sum)};
}

}  // namespace minim::cpu::generic
