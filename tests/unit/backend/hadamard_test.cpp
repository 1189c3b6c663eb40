// SPDX-License-Identifier: Apache-2.0
#include "backend/hadamard.h"

#include <cmath>
#include <random>
#include <vector>

#include "support/catch.h"

using minim::backend::hadamard;

namespace {

std::vector<float> some_numbers(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> x(n);
    for (float& value : x) value = normal(random);
    return x;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0.0;
    for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
}

}  // namespace

TEST_CASE("a rotation keeps dot products and is its own inverse") {
    for (const size_t n : {1, 2, 32, 128}) {
        const auto a = some_numbers(n, 1);
        const auto b = some_numbers(n, 2);
        auto rotated_a = a;
        auto rotated_b = b;
        hadamard(rotated_a.data(), static_cast<int64_t>(n));
        hadamard(rotated_b.data(), static_cast<int64_t>(n));
        CHECK(std::abs(dot(rotated_a, rotated_b) - dot(a, b)) < 1e-4);
        hadamard(rotated_a.data(), static_cast<int64_t>(n));
        for (size_t i = 0; i < n; ++i) CHECK(std::abs(rotated_a[i] - a[i]) < 1e-5F);
    }
}

TEST_CASE("one large component is spread over all") {
    std::vector<float> x(64, 0.0F);
    x[17] = 8.0F;
    hadamard(x.data(), 64);
    for (const float value : x) CHECK(std::abs(value) == 1.0F);
}
