// SPDX-License-Identifier: Apache-2.0
// Compares rows assembled from separate codes and scales with the formulas of the folders that they come from.
#include "format/gather.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/format.h"
#include "support/catch.h"

namespace minim {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t count, std::mt19937& random) {
    Bytes bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xFFU);
    return bytes;
}

// Returns random E4M3 codes without NaN.
Bytes random_e4m3(size_t count, std::mt19937& random) {
    Bytes bytes = random_bytes(count, random);
    for (std::byte& byte : bytes)
        if ((byte & std::byte{0x7F}) == std::byte{0x7F}) byte = std::byte{0x30};
    return bytes;
}

Bytes row_of(Format format, int64_t cols) {
    return Bytes(static_cast<size_t>(row_bytes(format, cols)) + 1, std::byte{0xAA});
}

std::vector<float> decoded(Format format, const Bytes& row, int64_t cols) {
    CHECK(row.back() == std::byte{0xAA});  // nothing is written behind the row
    std::vector<float> out(static_cast<size_t>(cols));
    decode_rows(format, row.data(), 1, row_bytes(format, cols), cols, out.data());
    return out;
}

uint32_t word(const Bytes& bytes, int64_t index) {
    uint32_t value;
    std::memcpy(&value, bytes.data() + 4 * index, sizeof(value));
    return value;
}

float e2m1(std::byte pair, int64_t element) {
    const auto code = std::to_integer<int>(pair) >> (4 * (element % 2)) & 15;
    return 0.5F * static_cast<float>(e2m1_doubled(code));
}

}  // namespace

TEST_CASE("all 254 numbers of E4M3 keep their value in a gathered row, and NaN stays NaN") {
    Bytes codes(256);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i);
    const float scales[] = {0.375F, -0x1p-20F};
    Bytes row = row_of(Format::fp8_e4m3_b128, 256);
    gather_fp8_row(codes.data(), scales, 256, row.data());
    const std::vector<float> out = decoded(Format::fp8_e4m3_b128, row, 256);
    for (size_t i = 0; i < 256; ++i) {
        const auto magnitude = static_cast<int>(i % 128);
        CAPTURE(i);
        if (magnitude == 127) {
            CHECK(std::isnan(out[i]));
            continue;
        }
        const double value =
            magnitude < 8 ? std::ldexp(magnitude, -9) : std::ldexp(8 + magnitude % 8, magnitude / 8 - 10);
        CHECK(static_cast<double>(out[i]) == (i < 128 ? value * 0.375 : value * 0x1p-20));
    }
}

TEST_CASE("NaN is found among codes of E4M3") {
    std::mt19937 random(1);
    Bytes codes = random_e4m3(1000, random);
    CHECK_FALSE(has_nan_e4m3(codes));
    CHECK_FALSE(has_nan_e4m3({}));
    for (const int nan : {0x7F, 0xFF}) {
        Bytes changed = codes;
        changed[777] = static_cast<std::byte>(nan);
        CHECK(has_nan_e4m3(changed));
    }
}

TEST_CASE("NVFP4 rows have the weights of codes and scales, scales below zero included") {
    constexpr int64_t k_cols = 192;
    std::mt19937 random(2);
    for (int round = 0; round < 20; ++round) {
        const Bytes codes = random_bytes(k_cols / 2, random);
        const Bytes scales = random_e4m3(k_cols / 16, random);
        Bytes row = row_of(Format::nvfp4, k_cols);
        gather_nvfp4_row(codes.data(), scales.data(), k_cols, row.data());
        const std::vector<float> out = decoded(Format::nvfp4, row, k_cols);
        for (int64_t k = 0; k < k_cols; ++k) {
            const float scale = e4m3_to_float(std::to_integer<uint8_t>(scales[static_cast<size_t>(k / 16)]));
            CHECK(out[static_cast<size_t>(k)] == scale * e2m1(codes[static_cast<size_t>(k / 2)], k));
        }
    }
}

TEST_CASE("MXFP4 rows have the weights of codes and exponents") {
    constexpr int64_t k_cols = 96;
    std::mt19937 random(3);
    const Bytes codes = random_bytes(k_cols / 2, random);
    const Bytes scales = {std::byte{120}, std::byte{1}, std::byte{140}};
    Bytes row = row_of(Format::mxfp4, k_cols);
    gather_mxfp4_row(codes.data(), scales.data(), k_cols, row.data());
    const std::vector<float> out = decoded(Format::mxfp4, row, k_cols);
    for (int64_t k = 0; k < k_cols; ++k) {
        const int exponent = std::to_integer<int>(scales[static_cast<size_t>(k / 32)]) - 127;
        CHECK(out[static_cast<size_t>(k)] ==
              std::ldexp(e2m1(codes[static_cast<size_t>(k / 2)], k), exponent));
    }
}

TEST_CASE("AWQ rows have the weights of the GEMM layout, any eight of them, at any address") {
    constexpr int64_t k_rows = 40;
    constexpr int64_t k_cols = 768;
    std::mt19937 random(4);
    const Bytes codes = random_bytes(k_cols * k_rows / 2 + 1, random);
    const Bytes zeros = random_bytes(k_cols / 128 * k_rows / 2, random);
    Bytes scales(k_cols / 128 * k_rows * 2);
    for (size_t i = 0; i < scales.size() / 2; ++i) {
        const uint16_t bits = float_to_f16(static_cast<float>(random() % 1000 + 1) / 4096.0F);
        std::memcpy(scales.data() + 2 * i, &bits, sizeof(bits));
    }
    const Bytes shifted(codes.begin() + 1, codes.end());
    const AwqMatrix matrix = {codes.data() + 1, zeros.data(), scales.data(), k_rows, k_cols};
    constexpr int k_order[] = {0, 4, 1, 5, 2, 6, 3, 7};
    for (const auto& [first, count] : {std::pair(0, 40), std::pair(8, 16), std::pair(32, 8)}) {
        const auto row_size = static_cast<size_t>(row_bytes(Format::int4_z128, k_cols));
        Bytes rows(static_cast<size_t>(count) * row_size + 1, std::byte{0xAA});
        gather_awq_rows(matrix, first, count, rows.data());
        CHECK(rows.back() == std::byte{0xAA});
        std::vector<float> out(static_cast<size_t>(count * k_cols));
        decode_rows(Format::int4_z128, rows.data(), count, static_cast<int64_t>(row_size), k_cols,
                    out.data());
        for (int64_t r = 0; r < count; ++r) {
            const int64_t n = first + r;
            const int shift = 4 * k_order[n % 8];
            for (int64_t k = 0; k < k_cols; ++k) {
                const int64_t group = k / 128;
                const auto q = static_cast<int>(word(shifted, k * k_rows / 8 + n / 8) >> shift & 15);
                const auto z = static_cast<int>(word(zeros, group * k_rows / 8 + n / 8) >> shift & 15);
                uint16_t bits;
                std::memcpy(&bits, scales.data() + 2 * (group * k_rows + n), sizeof(bits));
                const float expected = f16_to_float(bits) * static_cast<float>(q - z);
                REQUIRE(out[static_cast<size_t>(r * k_cols + k)] == expected);
            }
        }
    }
}

}  // namespace minim
