// SPDX-License-Identifier: Apache-2.0
#include "sampling/portable_math.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "sampling/random.h"
#include "support/catch.h"

namespace minim::sampling {
namespace {

constexpr double k_infinity = std::numeric_limits<double>::infinity();

// Returns the distance in units of the last place of the correct result.
double error_in_ulp(double value, long double correct) {
    const double rounded = std::abs(static_cast<double>(correct));
    const double ulp = std::nextafter(rounded, k_infinity) - rounded;
    return static_cast<double>(std::abs(static_cast<long double>(value) - correct) /
                               static_cast<long double>(ulp));
}

double worst_exp_error(double lowest, double highest) {
    Random random(1);
    double worst = 0.0;
    for (int i = 0; i < 50000; ++i) {
        const double x = lowest + (highest - lowest) * random.uniform();
        worst = std::max(worst, error_in_ulp(portable_exp(x), std::exp(static_cast<long double>(x))));
    }
    return worst;
}

double worst_log_error(double lowest, double highest) {
    Random random(2);
    double worst = 0.0;
    for (int i = 0; i < 50000; ++i) {
        const double x = lowest + (highest - lowest) * random.uniform();
        worst = std::max(worst, error_in_ulp(portable_log(x), std::log(static_cast<long double>(x))));
    }
    return worst;
}

}  // namespace

TEST_CASE("exp is within 2 ulp of the long double result") {
    CHECK(worst_exp_error(-1e-6, 1e-6) < 2.0);
    CHECK(worst_exp_error(-1.0, 1.0) < 2.0);
    CHECK(worst_exp_error(-40.0, 0.0) < 2.0);
    CHECK(worst_exp_error(-745.0, 709.0) < 2.0);
    CHECK(worst_exp_error(-745.0, -708.0) < 2.0);
    CHECK(worst_exp_error(709.0, 709.78) < 2.0);
}

TEST_CASE("log is within 2 ulp of the long double result") {
    CHECK(worst_log_error(0.999, 1.001) < 2.0);
    CHECK(worst_log_error(0.5, 2.0) < 2.0);
    CHECK(worst_log_error(1.0, 200064.0) < 2.0);
    CHECK(worst_log_error(1e-300, 1e300) < 2.0);
    CHECK(worst_log_error(0.0, 1e-307) < 2.0);
}

TEST_CASE("exp and log are exact where the result is") {
    CHECK(portable_exp(0.0) == 1.0);
    CHECK(portable_exp(-0.0) == 1.0);
    CHECK(portable_log(1.0) == 0.0);
}

TEST_CASE("exp and log are defined at the ends of their ranges") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(portable_exp(-k_infinity) == 0.0);
    CHECK(portable_exp(-1e300) == 0.0);
    CHECK(portable_exp(-745.2) == 0.0);
    CHECK(portable_exp(-745.0) == std::numeric_limits<double>::denorm_min());
    CHECK(portable_exp(709.7) < k_infinity);
    CHECK(portable_exp(709.8) == k_infinity);
    CHECK(portable_exp(k_infinity) == k_infinity);
    CHECK(std::isnan(portable_exp(nan)));

    CHECK(portable_log(0.0) == -k_infinity);
    CHECK(portable_log(-0.0) == -k_infinity);
    CHECK(portable_log(k_infinity) == k_infinity);
    CHECK(std::isnan(portable_log(-1.0)));
    CHECK(std::isnan(portable_log(-k_infinity)));
    CHECK(std::isnan(portable_log(nan)));
    CHECK(portable_log(std::numeric_limits<double>::denorm_min()) == Approx(-744.4400719213812));
}

TEST_CASE("the sums of exp and log over many arguments are pinned to the last bit") {
    double exp_sum = 0.0;
    double log_sum = 0.0;
    for (int i = 0; i < 1000; ++i) {
        exp_sum += portable_exp(-0.037 * i);
        log_sum += portable_log(1.0 + 0.73 * i);
    }
    CHECK(exp_sum == 0x1.b87b54ed6df17p+4);
    CHECK(log_sum == 0x1.5e01703df8a73p+12);
}

}  // namespace minim::sampling
