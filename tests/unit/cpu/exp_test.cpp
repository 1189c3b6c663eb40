// SPDX-License-Identifier: Apache-2.0
#include "cpu/generic/exp.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "cpu/scalar/simd.h"
#include "support/catch.h"
#include "unit/cpu/support.h"

namespace minim::test {
namespace {

constexpr float k_infinity = std::numeric_limits<float>::infinity();
constexpr float k_nan = std::numeric_limits<float>::quiet_NaN();

float exp_of(float x) {
    return cpu::generic::exp<cpu::scalar::Simd>(cpu::scalar::Simd::all(x)).lane[0];
}

// Returns every 2^12th float: all exponents, some 2000 mantissas each.
std::vector<float> sweep() {
    std::vector<float> values;
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4096) {
        values.push_back(bits_to_float(static_cast<uint32_t>(bits + 1234)));
    }
    return values;
}

}  // namespace

TEST_CASE("exp is within 2 units in the last place wherever the result is finite") {
    double worst = 0.0;
    const auto check = [&](float x) {
        const double exact = std::exp(static_cast<double>(x));
        if (!(exact <= static_cast<double>(std::numeric_limits<float>::max()))) return;
        const auto nearest = static_cast<float>(exact);
        const float next = std::nextafter(nearest, k_infinity);
        const double unit = std::isinf(next) ? std::ldexp(1.0, 104)
                                             : static_cast<double>(next) - static_cast<double>(nearest);
        worst = std::max(worst, std::abs(static_cast<double>(exp_of(x)) - exact) / unit);
    };
    for (const float x : sweep()) check(x);
    for (int i = -110000; i <= 89000; ++i) check(static_cast<float>(i) / 1000.0F);
    INFO("worst error in units: " << worst);
    CHECK(worst <= 2.0);
}

TEST_CASE("exp of special values") {
    CHECK(exp_of(0.0F) == 1.0F);
    CHECK(exp_of(-0.0F) == 1.0F);
    CHECK(exp_of(-k_infinity) == 0.0F);
    CHECK(exp_of(-1e30F) == 0.0F);
    CHECK(exp_of(-104.0F) == 0.0F);
    CHECK(exp_of(-103.0F) > 0.0F);  // the smallest subnormal
    CHECK(std::isinf(exp_of(k_infinity)));
    CHECK(std::isinf(exp_of(88.8F)));
    CHECK(std::isfinite(exp_of(88.7F)));
    CHECK(std::isnan(exp_of(k_nan)));
}

TEST_CASE("sigmoid, silu and softmax have the same bits on every instruction set") {
    std::vector<float> x = sweep();
    x.insert(x.end(), {k_infinity, -k_infinity, k_nan, 0.0F, -0.0F});
    const auto n = static_cast<int64_t>(x.size());
    const std::vector<float> up = Random(1).normal(n);
    std::vector<std::vector<float>> first;
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        std::vector<std::vector<float>> results(4, std::vector<float>(x.size()));
        kernels->sigmoid(x.data(), n, results[0].data());
        kernels->silu_mul(x.data(), up.data(), n, results[1].data());
        kernels->clamped_silu_mul(x.data(), up.data(), n, 1.702F, 7.0F, results[3].data());
        for (const int64_t length : {int64_t{1}, int64_t{5}, int64_t{16}, int64_t{31}, int64_t{1000}}) {
            std::vector<float> scores = Random(2).normal(length, 20.0F);
            results[2].push_back(kernels->softmax_exp(scores.data(), length).sum);
            results[2].insert(results[2].end(), scores.begin(), scores.end());
        }
        if (first.empty()) first = results;
        for (size_t i = 0; i < results.size(); ++i) {
            INFO(kernels->name << " " << i);
            CHECK(same_bits(results[i], first[i]));
        }
    }
}

TEST_CASE("the clamped activation agrees with double precision, and lets NaN pass") {
    const std::vector<float> gate = {-100.0F, -7.5F, -1.0F,  0.0F, 0.7F,  6.9F,
                                     7.0F,    7.5F,  100.0F, 2.0F, k_nan, 1.0F};
    const std::vector<float> up = {1.5F, 0.5F, -7.5F,   3.0F,   7.5F, -1.0F,
                                   2.0F, 2.0F, -100.0F, 100.0F, 1.0F, k_nan};
    const auto n = static_cast<int64_t>(gate.size());
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        std::vector<float> out(gate.size());
        kernels->clamped_silu_mul(gate.data(), up.data(), n, 1.702F, 7.0F, out.data());
        for (size_t i = 0; i + 2 < gate.size(); ++i) {
            const double g = std::min(static_cast<double>(gate[i]), 7.0);
            const double u = std::clamp(static_cast<double>(up[i]), -7.0, 7.0);
            const double right = g / (1.0 + std::exp(-static_cast<double>(1.702F) * g)) * (u + 1.0);
            INFO(kernels->name << " " << gate[i] << " " << up[i]);
            CHECK(static_cast<double>(out[i]) == Approx(right).epsilon(1e-6).margin(1e-36));
        }
        CHECK(std::isnan(out[gate.size() - 2]));
        CHECK(std::isnan(out[gate.size() - 1]));
    }
}

TEST_CASE("sigmoid and silu agree with double precision") {
    const std::vector<float> x = {-100.0F, -30.0F, -5.5F, -1.0F, -1e-3F, 0.0F,
                                  1e-3F,   0.7F,   3.0F,  20.0F, 100.0F};
    const auto n = static_cast<int64_t>(x.size());
    const std::vector<float> up(x.size(), 1.5F);
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        std::vector<float> sigmoid(x.size());
        std::vector<float> silu(x.size());
        kernels->sigmoid(x.data(), n, sigmoid.data());
        kernels->silu_mul(x.data(), up.data(), n, silu.data());
        for (size_t i = 0; i < x.size(); ++i) {
            const double z = static_cast<double>(x[i]);
            const double s = 1.0 / (1.0 + std::exp(-z));
            CHECK(static_cast<double>(sigmoid[i]) == Approx(s).epsilon(3e-7).margin(1e-38));
            CHECK(static_cast<double>(silu[i]) == Approx(z * s * 1.5).epsilon(4e-7).margin(1e-36));
        }
    }
}

TEST_CASE("softmax weights are exp of the distance to the largest score, and their sum is returned") {
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        CHECK(kernels->softmax_exp(nullptr, 0).sum == 0.0F);
        for (const int64_t n : {1, 2, 15, 16, 17, 100, 4097}) {
            const std::vector<float> x = Random(static_cast<uint32_t>(n)).normal(n, 10.0F);
            std::vector<float> y = x;
            const auto [found, sum] = kernels->softmax_exp(y.data(), n);
            const float largest = *std::max_element(x.begin(), x.end());
            CHECK(found == largest);
            double exact_sum = 0.0;
            for (size_t i = 0; i < x.size(); ++i) {
                const double exact = std::exp(static_cast<double>(x[i] - largest));
                exact_sum += exact;
                REQUIRE(static_cast<double>(y[i]) == Approx(exact).epsilon(2e-7).margin(1e-40));
            }
            CHECK(static_cast<double>(sum) == Approx(exact_sum).epsilon(1e-6));
        }
        // Extreme values, far apart or all equal, do not overflow.
        std::vector<float> extreme = {3e38F, -3e38F, 3e38F};
        CHECK(kernels->softmax_exp(extreme.data(), 3).sum == 2.0F);
        CHECK(extreme == std::vector<float>{1.0F, 0.0F, 1.0F});
    }
}

}  // namespace minim::test
