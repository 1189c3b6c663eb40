// SPDX-License-Identifier: Apache-2.0
// exp and log in + - * / and bit operations only. The C library's versions may differ in the last bit from
// one system to the next, and one such bit can change a sampled token; with these the same seed gives the
// same text everywhere (IEEE doubles, round to nearest, no contraction of a*b+c).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/platform.h"

namespace minim::sampling {

// ln 2 in two parts: the first has 32 significant bits, so that its product with an exponent is exact.
constexpr double k_ln2_high = 0x1.62e42feep-1;
constexpr double k_ln2_low = 0x1.a39ef35793c76p-33;

// Added to a double below 2^51 in size, this leaves the nearest integer in the low bits of the significand.
constexpr double k_to_integer = 0x1.8p52;

// 2^n for an integer n, -1022 <= n <= 1023: n plus the exponent bias, moved to the exponent's place.
MINIM_HOST_DEVICE double power_of_two(double n) noexcept {
    const double biased = n + (k_to_integer + 1023.0);
    uint64_t bits;
    memcpy(&bits, &biased, sizeof(bits));
    bits <<= 52;
    double power;
    memcpy(&power, &bits, sizeof(power));
    return power;
}

// The range in which e^x is neither 0 nor infinity, with a margin.
constexpr double k_exp_lowest = -746.0;
constexpr double k_exp_highest = 710.0;

// e^x for x from k_exp_lowest to k_exp_highest within 2 ulp (tested); the ends give 0 and infinity.
// x = k ln 2 + r with |r| <= ln 2 / 2, then the Taylor sum of e^r up to r^13 / 13!, whose remainder is below
// 5e-18. Inline and without a branch: a loop over it runs in vector registers.
MINIM_HOST_DEVICE double portable_exp_in_range(double x) noexcept {
    constexpr double k_log2_e = 0x1.71547652b82fep0;
    const double k = (x * k_log2_e + k_to_integer) - k_to_integer;
    const double r = (x - k * k_ln2_high) - k * k_ln2_low;
    double sum = 1.0 / 6227020800.0;
    sum = sum * r + 1.0 / 479001600.0;
    sum = sum * r + 1.0 / 39916800.0;
    sum = sum * r + 1.0 / 3628800.0;
    sum = sum * r + 1.0 / 362880.0;
    sum = sum * r + 1.0 / 40320.0;
    sum = sum * r + 1.0 / 5040.0;
    sum = sum * r + 1.0 / 720.0;
    sum = sum * r + 1.0 / 120.0;
    sum = sum * r + 1.0 / 24.0;
    sum = sum * r + 1.0 / 6.0;
    sum = sum * r + 1.0 / 2.0;
    sum = sum * r + 1.0;
    sum = sum * r + 1.0;
    // In two halves: k goes from -1076 to 1024, beyond what one normal power of two can hold.
    const double half = (k * 0.5 + k_to_integer) - k_to_integer;
    return sum * power_of_two(half) * power_of_two(k - half);
}

// Returns e^x for every x: 0 below half the smallest subnormal, infinity above the largest double, NaN for NaN.
inline double portable_exp(double x) noexcept {
    if (x != x) return x;
    return portable_exp_in_range(std::clamp(x, k_exp_lowest, k_exp_highest));
}

// Returns the natural logarithm within 2 ulp (tested): -infinity for 0, NaN below 0 and for NaN, infinity for infinity.
double portable_log(double x) noexcept;

}  // namespace minim::sampling
