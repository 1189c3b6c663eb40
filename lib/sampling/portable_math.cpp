// SPDX-License-Identifier: Apache-2.0
#include "sampling/portable_math.h"

#include <limits>

namespace minim::sampling {

// x = 2^e m with m in (sqrt(1/2), sqrt(2)], and with s = (m - 1) / (m + 1), |s| < 0.172:
// ln m = 2 (s + s^3/3 + s^5/5 + ...), here up to s^25 / 25.
double portable_log(double x) noexcept {
    if (x != x || x < 0) return std::numeric_limits<double>::quiet_NaN();
    if (x == 0) return -std::numeric_limits<double>::infinity();
    if (x > std::numeric_limits<double>::max()) return x;

    int64_t exponent = 0;
    if (x < std::numeric_limits<double>::min()) {
        x *= 0x1p54;
        exponent = -54;
    }
    const auto bits = std::bit_cast<uint64_t>(x);
    constexpr uint64_t k_fraction_mask = (uint64_t{1} << 52) - 1;
    exponent += static_cast<int64_t>(bits >> 52) - 1023;
    double m = std::bit_cast<double>((bits & k_fraction_mask) | (uint64_t{1023} << 52));
    constexpr double k_sqrt_2 = 0x1.6a09e667f3bcdp0;
    if (m > k_sqrt_2) {
        m *= 0.5;
        exponent += 1;
    }

    const double f = m - 1.0;
    const double s = f / (m + 1.0);
    const double s2 = s * s;
    double sum = 0.0;
    for (int n = 25; n >= 3; n -= 2) sum = sum * s2 + 1.0 / n;
    // 2s = f - s f, so that the leading term f carries no rounding of the division.
    const double tail = 2.0 * s * s2 * sum - s * f;
    const auto e = static_cast<double>(exponent);
    return e * k_ln2_high + (f + (tail + e * k_ln2_low));
}

}  // namespace minim::sampling
