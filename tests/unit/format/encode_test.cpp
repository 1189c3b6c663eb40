// SPDX-License-Identifier: Apache-2.0
// Compares the scalar encoders with the reference bytes.
#include "format/encode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "activation_blocks.h"
#include "golden.h"
#include "support/catch.h"

namespace minim {
namespace {

constexpr int64_t k_rows = 24;
constexpr int64_t k_cols = 512;

double square_error(const std::vector<float>& x, const std::vector<float>& y) {
    double sum = 0.0;
    for (size_t i = 0; i < x.size(); ++i)
        sum += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2.0);
    return sum;
}

std::vector<float> decoded(Format format, const std::vector<std::byte>& rows, int64_t n_rows, int64_t cols) {
    std::vector<float> out(static_cast<size_t>(n_rows * cols));
    decode_rows(format, rows.data(), n_rows, static_cast<int64_t>(rows.size()) / n_rows, cols, out.data());
    return out;
}

}  // namespace

TEST_CASE("the file encoders write the reference bytes") {
    const test::GoldenFile golden = test::golden_other("encode_ref");
    const std::vector<float> src = golden.section<float>("src");
    REQUIRE(src.size() == k_rows * k_cols);
    for (const char* name : {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"}) {
        CAPTURE(name);
        const std::vector<std::byte> expect = golden.section<std::byte>(name);
        const EncodeRow encode = row_encoder(format_from_name(name).value());
        REQUIRE(encode != nullptr);
        const auto stride = static_cast<int64_t>(expect.size()) / k_rows;
        std::vector<std::byte> out(expect.size());
        for (int64_t row = 0; row < k_rows; ++row) {
            encode(src.data() + row * k_cols, k_cols, out.data() + row * stride);
            CAPTURE(row);
            CHECK(std::memcmp(out.data() + row * stride, expect.data() + row * stride,
                              static_cast<size_t>(stride)) == 0);
        }
    }
}

TEST_CASE("the activation encoders write the reference bytes") {
    const test::GoldenFile golden = test::golden_other("encode_ref");
    const std::vector<float> src = golden.section<float>("src");
    const std::vector<std::byte> expect_q8_1 = golden.section<std::byte>("Q8_1");
    const std::vector<std::byte> expect_q8_k = golden.section<std::byte>("Q8_K");
    std::vector<Q8_1Block> q8_1(src.size() / k_q8_1_elems);
    std::vector<Q8_KBlock> q8_k(src.size() / k_q8_k_elems);
    encode_row_q8_1(src.data(), static_cast<int64_t>(src.size()), q8_1.data());
    encode_row_q8_k(src.data(), static_cast<int64_t>(src.size()), q8_k.data());
    REQUIRE(expect_q8_1.size() == q8_1.size() * sizeof(Q8_1Block));
    REQUIRE(expect_q8_k.size() == q8_k.size() * sizeof(Q8_KBlock));
    CHECK(std::memcmp(q8_1.data(), expect_q8_1.data(), expect_q8_1.size()) == 0);
    CHECK(std::memcmp(q8_k.data(), expect_q8_k.data(), expect_q8_k.size()) == 0);
}

TEST_CASE("the activation rows of the golden files are what the encoders write") {
    for (const char* name : {"activation_main_256", "activation_main_512"}) {
        CAPTURE(name);
        const test::GoldenFile golden(test::golden_index().at("activations").at(name));
        const std::vector<float> x = golden.section<float>("f32");
        const auto count = static_cast<int64_t>(x.size());
        std::vector<std::byte> q8_0(x.size() / 32 * 34);
        std::vector<Q8_KBlock> q8_k(x.size() / k_q8_k_elems);
        encode_row_q8_0(x.data(), count, q8_0.data());
        encode_row_q8_k(x.data(), count, q8_k.data());
        CHECK(q8_0 == golden.section<std::byte>("Q8_0"));
        const std::vector<std::byte> expect = golden.section<std::byte>("Q8_K");
        REQUIRE(expect.size() == q8_k.size() * sizeof(Q8_KBlock));
        CHECK(std::memcmp(q8_k.data(), expect.data(), expect.size()) == 0);
    }
}

TEST_CASE("the IQ4_NL encoder is as exact as the reference search to within a tenth") {
    const test::GoldenFile golden = test::golden_other("encode_ref");
    const std::vector<float> src = golden.section<float>("src");
    const std::vector<std::byte> reference = golden.section<std::byte>("IQ4_NL");
    std::vector<std::byte> ours(reference.size());
    const auto stride = static_cast<int64_t>(reference.size()) / k_rows;
    for (int64_t row = 0; row < k_rows; ++row) {
        encode_row_iq4_nl(src.data() + row * k_cols, k_cols, ours.data() + row * stride);
        const std::vector<float> x(src.begin() + row * k_cols, src.begin() + (row + 1) * k_cols);
        const std::vector<std::byte> our_row(ours.begin() + row * stride, ours.begin() + (row + 1) * stride);
        const std::vector<std::byte> reference_row(reference.begin() + row * stride,
                                                   reference.begin() + (row + 1) * stride);
        const double ours_error = square_error(x, decoded(Format::iq4_nl, our_row, 1, k_cols));
        const double reference_error = square_error(x, decoded(Format::iq4_nl, reference_row, 1, k_cols));
        CAPTURE(row, ours_error, reference_error);
        CHECK(ours_error <= 1.1 * reference_error + 1e-30);
    }
}

// The golden figures come from encoders that search for the best scale. The errors of the plain encoders may be
// a quarter larger.
TEST_CASE("encoded Gaussian weights are about as exact as the golden ones") {
    for (const char* name : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL"}) {
        CAPTURE(name);
        const test::GoldenFile golden = test::golden_type(name);
        const std::vector<float> src = golden.section<float>("gauss_src");
        const auto count = static_cast<int64_t>(src.size());
        const Format format = format_from_name(name).value();
        uint64_t bytes = 0;
        REQUIRE(row_bytes(format, src.size(), bytes));
        std::vector<std::byte> row(bytes);
        row_encoder(format)(src.data(), count, row.data());
        const double error = square_error(src, decoded(format, row, 1, count));
        const double power = square_error(src, std::vector<float>(src.size(), 0.0F));
        const double golden_rmse = golden.entry().at("verify").at("gauss_relative_rmse").get<double>();
        CHECK(std::sqrt(error / power) <= 1.25 * golden_rmse);
    }
}

TEST_CASE("a zero row encodes to zeros") {
    const std::vector<float> zeros(256, 0.0F);
    for (const FormatTraits& entry : all_formats()) {
        const EncodeRow encode = row_encoder(entry.format);
        if (encode == nullptr) continue;
        CAPTURE(entry.name);
        uint64_t bytes = 0;
        REQUIRE(row_bytes(entry.format, zeros.size(), bytes));
        std::vector<std::byte> row(bytes, std::byte{0xAA});
        encode(zeros.data(), 256, row.data());
        const std::vector<float> out = decoded(entry.format, row, 1, 256);
        CHECK(std::all_of(out.begin(), out.end(), [](float weight) { return weight == 0.0F; }));
    }
    Q8_KBlock block;
    encode_row_q8_k(zeros.data(), 256, &block);
    CHECK(block.d == 0.0F);
    CHECK(block.sums[15] == 0);
}

TEST_CASE("NaN, infinite and tiny activations encode without harm") {
    constexpr float k_infinity = std::numeric_limits<float>::infinity();
    for (const float odd : {std::nanf(""), k_infinity, -k_infinity, 3.4e38F, 1e-45F, 1e-38F}) {
        std::vector<float> x(256, 0.5F * odd);
        x[17] = odd;
        x[200] = -odd;
        std::vector<std::byte> row(256 * sizeof(float));
        for (const FormatTraits& entry : all_formats()) {
            const EncodeRow encode = row_encoder(entry.format);
            if (encode != nullptr) encode(x.data(), 256, row.data());
        }
        Q8_1Block q8_1[8];
        Q8_KBlock q8_k;
        encode_row_q8_1(x.data(), 256, q8_1);
        encode_row_q8_k(x.data(), 256, &q8_k);
    }
    SUCCEED();
}

TEST_CASE("F32, F16 and BF16 rows hold their numbers in order") {
    const std::vector<float> x = {0.0F, 1.0F, -2.5F, 65504.0F};
    for (const Format format : {Format::f32, Format::f16}) {
        std::vector<std::byte> row(x.size() * static_cast<size_t>(traits(format).block_bytes));
        row_encoder(format)(x.data(), 4, row.data());
        CHECK(decoded(format, row, 1, 4) == x);
    }
    std::vector<std::byte> row(8);
    encode_row_bf16(x.data(), 4, row.data());
    CHECK(decoded(Format::bf16, row, 1, 4) == std::vector<float>{0.0F, 1.0F, -2.5F, 65536.0F});
}

}  // namespace minim
