// SPDX-License-Identifier: Apache-2.0
// The narrow floats: E4M3, UE4M3, E2M1 and E8M0, and the narrowing conversions of base/half.h on the same
// golden file.
#include "format/e4m3.h"

#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"
#include "format/e2m1.h"
#include "golden.h"
#include "support/catch.h"
#include "support/e4m3.h"

namespace minim {

TEST_CASE("narrowing to BF16, F16 and saturated E4M3 gives the golden bits") {
    const test::GoldenFile golden = test::golden_other("narrow");
    const std::vector<float> src = golden.section<float>("src");
    const std::vector<uint16_t> bf16 = golden.section<uint16_t>("bf16");
    const std::vector<uint16_t> f16 = golden.section<uint16_t>("f16");
    const std::vector<uint8_t> e4m3 = golden.section<uint8_t>("e4m3_sat");
    size_t wrong = 0;
    for (size_t i = 0; i < src.size(); ++i) {
        if (float_to_bf16(src[i]) != bf16[i]) ++wrong;
        if (float_to_f16(src[i]) != f16[i]) ++wrong;
        if (float_to_e4m3_saturated(src[i]) != e4m3[i]) ++wrong;
    }
    CHECK(src.size() == 4022);
    CHECK(wrong == 0);
}

TEST_CASE("widening and narrowing a 16-bit float gives the same bits back") {
    size_t wrong = 0;
    for (uint32_t bits = 0; bits < 0x10000U; ++bits) {
        const auto half = static_cast<uint16_t>(bits);
        const float f16 = f16_to_float(half);
        const float bf16 = bf16_to_float(half);
        if (!std::isnan(f16) && float_to_f16(f16) != half) ++wrong;
        if (!std::isnan(bf16) && float_to_bf16(bf16) != half) ++wrong;
        if (std::isnan(f16) && !std::isnan(f16_to_float(float_to_f16(f16)))) ++wrong;
        if (std::isnan(bf16) && !std::isnan(bf16_to_float(float_to_bf16(bf16)))) ++wrong;
    }
    CHECK(wrong == 0);
}

TEST_CASE("every E4M3 code survives a round trip") {
    for (int code = 0; code < 256; ++code) {
        CAPTURE(code);
        const float value = e4m3_to_float(static_cast<uint8_t>(code));
        CHECK(std::isnan(value) == ((code & 0x7F) == 0x7F));
        CHECK(float_to_e4m3_saturated(value) == code);
    }
}

TEST_CASE("E4M3 saturates, keeps signs and rounds ties to even") {
    CHECK(float_to_e4m3_saturated(1e9F) == 0x7E);
    CHECK(float_to_e4m3_saturated(-std::numeric_limits<float>::infinity()) == 0xFE);
    CHECK(float_to_e4m3_saturated(-0.0F) == 0x80);
    CHECK((float_to_e4m3_saturated(std::nanf("")) & 0x7F) == 0x7F);
    CHECK(e4m3_to_float(float_to_e4m3_saturated(17.0F)) == 16.0F);  // between 16 and 18
    CHECK(e4m3_to_float(float_to_e4m3_saturated(19.0F)) == 20.0F);  // between 18 and 20
    CHECK(float_to_e4m3_saturated(0.0009765625F) == 0x00);          // half the smallest: to even, zero
    CHECK(float_to_e4m3_saturated(0.00146484375F) == 0x01);         // three quarters of it
    CHECK(float_to_e4m3_saturated(std::numeric_limits<float>::denorm_min()) == 0x00);
}

TEST_CASE("an NVFP4 block scale has no sign and no NaN") {
    for (int code = 0; code < 128; ++code) {
        CAPTURE(code);
        const auto byte = static_cast<uint8_t>(code);
        const float expect = code == 0x7F ? 0.0F : e4m3_to_float(byte);
        CHECK(ue4m3_to_float(byte) == expect);
        CHECK(ue4m3_to_float(byte | 0x80) == expect);
    }
}

TEST_CASE("E8M0 scales are powers of two from 2^-127 up") {
    CHECK(e8m0_to_float(127) == 1.0F);
    CHECK(e8m0_to_float(0) == std::ldexp(1.0F, -127));
    CHECK(e8m0_to_float(254) == std::ldexp(1.0F, 127));
    CHECK(std::isnan(e8m0_to_float(255)));
    for (int code = 0; code < 256; ++code) {
        CHECK(e8m0_half_to_float(static_cast<uint8_t>(code)) == std::ldexp(1.0F, code - 128));
    }
}

TEST_CASE("E4M3 codes as halves") {
    for (uint32_t code = 0; code < 256; ++code) {
        if ((code & 0x7FU) == 0x7FU) continue;
        const float value = e4m3_to_float(static_cast<uint8_t>(code)) / k_e4m3_half_factor;
        const uint16_t half = e4m3_as_half(static_cast<uint8_t>(code));
        CHECK(f16_to_float(half) == value);
        CHECK(std::signbit(f16_to_float(half)) == std::signbit(value));
        const uint32_t other = e4m3_as_half(0x3A);
        for (const bool is_low : {true, false}) {
            const uint32_t even = is_low ? code | 0x3A0000U : 0x3AU | code << 16;
            const uint32_t expected = is_low ? half | other << 16 : other | static_cast<uint32_t>(half) << 16;
            CHECK(e4m3_as_halves_even(even | 0xC500D100U) == expected);
            CHECK(e4m3_as_halves_odd(even << 8 | 0x00C500D1U) == expected);
        }
    }
}

}  // namespace minim
