// SPDX-License-Identifier: Apache-2.0
#include "base/half.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "support/catch.h"

using namespace minim;

namespace {

bool is_f16_nan(uint32_t bits) {
    return (bits & 0x7C00U) == 0x7C00U && (bits & 0x3FFU) != 0;
}
bool is_bf16_nan(uint32_t bits) {
    return (bits & 0x7F80U) == 0x7F80U && (bits & 0x7FU) != 0;
}

// Returns the value of a binary16 by its definition.
double f16_value(uint32_t bits) {
    const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
    const int exponent = static_cast<int>(bits >> 10 & 31U);
    const double mantissa = bits & 0x3FFU;
    if (exponent == 0) return sign * std::ldexp(mantissa, -24);
    if (exponent == 31) return sign * INFINITY;
    return sign * std::ldexp(1024.0 + mantissa, exponent - 25);
}

}  // namespace

TEST_CASE("every F16 that is no NaN has its defined value and comes back to its bits") {
    for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
        if (is_f16_nan(bits)) continue;
        const float value = f16_to_float(static_cast<uint16_t>(bits));
        REQUIRE(static_cast<double>(value) == f16_value(bits));
        REQUIRE(std::signbit(value) == ((bits & 0x8000U) != 0));
        REQUIRE(float_to_f16(value) == bits);
    }
}

TEST_CASE("a float between two F16 goes to the nearer, a float in the middle to the even one") {
    for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
        const double low = f16_value(bits);
        const double high = f16_value(bits + 1);
        const auto middle = static_cast<float>((low + high) / 2);  // exact: one bit more than an F16 has
        const uint32_t even = (bits & 1U) == 0 ? bits : bits + 1;
        REQUIRE(float_to_f16(middle) == even);
        REQUIRE(float_to_f16(std::nextafter(middle, -1.0F)) == bits);
        REQUIRE(float_to_f16(std::nextafter(middle, INFINITY)) == bits + 1);
        REQUIRE(float_to_f16(-middle) == (even | 0x8000U));
    }
}

TEST_CASE("floats past the largest F16 round to it or to infinity") {
    CHECK(float_to_f16(65504.0F) == 0x7BFF);
    CHECK(float_to_f16(std::nextafter(65520.0F, 0.0F)) == 0x7BFF);
    CHECK(float_to_f16(65520.0F) == 0x7C00);
    CHECK(float_to_f16(std::numeric_limits<float>::max()) == 0x7C00);
    CHECK(float_to_f16(-INFINITY) == 0xFC00);
}

TEST_CASE("NaN stays NaN in both halves") {
    for (const uint32_t bits : {0x7FC00000U, 0x7F800001U, 0xFFFFFFFFU, 0x7F80FFFFU}) {
        CHECK(is_f16_nan(float_to_f16(bits_to_float(bits))));
        CHECK(is_bf16_nan(float_to_bf16(bits_to_float(bits))));
    }
    CHECK(std::isnan(f16_to_float(0x7E01)));
    CHECK(std::isnan(f16_to_float(0xFC01)));
}

TEST_CASE("every BF16 that is no NaN comes back to its bits") {
    for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
        if (is_bf16_nan(bits)) continue;
        REQUIRE(float_to_bf16(bf16_to_float(static_cast<uint16_t>(bits))) == bits);
    }
}

TEST_CASE("a float between two BF16 goes to the nearer, a float in the middle to the even one") {
    for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
        const uint32_t middle = bits << 16 | 0x8000U;
        REQUIRE(float_to_bf16(bits_to_float(middle)) == ((bits & 1U) == 0 ? bits : bits + 1));
        REQUIRE(float_to_bf16(bits_to_float(middle - 1)) == bits);
        REQUIRE(float_to_bf16(bits_to_float(middle + 1)) == bits + 1);
    }
    CHECK(float_to_bf16(std::numeric_limits<float>::max()) == 0x7F80);
}
