// SPDX-License-Identifier: Apache-2.0
// Rows of blocks: integers with scales and zero points, and FP8 with scales that are powers of two.
#include "format/integers.h"

#include <cmath>
#include <random>
#include <vector>

#include "base/half.h"
#include "format/e4m3.h"
#include "support/catch.h"

namespace minim {
namespace {

struct Row {
    std::vector<uint8_t> codes;
    std::vector<float> scales;
    std::vector<int16_t> zeros;
};

// Returns a row of random codes whose scales are exact in F16.
Row some_row(int64_t cols, int64_t group, int bits, bool symmetric) {
    std::mt19937 random(static_cast<uint32_t>(cols + group + bits));
    Row row;
    for (int64_t k = 0; k < cols; ++k) row.codes.push_back(static_cast<uint8_t>(random() % (1U << bits)));
    for (int64_t g = 0; g < cols / group; ++g) {
        row.scales.push_back((g % 2 == 0 ? 1.0F : -1.0F) * static_cast<float>(random() % 512 + 1) / 1024.0F);
        const auto zero = symmetric ? 1U << (bits - 1) : random() % ((1U << bits) + 1);
        row.zeros.push_back(static_cast<int16_t>(zero));
    }
    return row;
}

}  // namespace

TEST_CASE("every format of whole numbers gives (code - zero) * scale") {
    struct Case {
        Format format;
        int bits;
        int64_t group;
        bool symmetric;
    };
    for (const Case& c : {Case{Format::q4_0, 4, 32, true},        Case{Format::q4_0, 4, 64, true},
                          Case{Format::int4_s64, 4, 64, true},    Case{Format::int4_s64, 4, 128, true},
                          Case{Format::int4_s128, 4, 128, true},  Case{Format::int4_s128, 4, 512, true},
                          Case{Format::int4_z32, 4, 32, false},   Case{Format::int4_z32, 4, 64, false},
                          Case{Format::int4_z64, 4, 64, false},   Case{Format::int4_z64, 4, 256, false},
                          Case{Format::int4_z128, 4, 128, false}, Case{Format::int4_z128, 4, 256, true},
                          Case{Format::int4_row, 4, 512, true},   Case{Format::int4_w32, 4, 32, false},
                          Case{Format::int4_w32, 4, 256, false},  Case{Format::q8_0, 8, 32, true},
                          Case{Format::q8_0, 8, 128, true},       Case{Format::int8_s64, 8, 64, true},
                          Case{Format::int8_s128, 8, 256, true},  Case{Format::int8_z32, 8, 32, false},
                          Case{Format::int8_z64, 8, 64, false},   Case{Format::int8_z64, 8, 128, false},
                          Case{Format::int8_z128, 8, 128, false}, Case{Format::int8_row, 8, 512, true},
                          Case{Format::int8_w32, 8, 32, false},   Case{Format::int8_w32, 8, 256, false}}) {
        INFO(traits(c.format).name << " in groups of " << c.group);
        constexpr int64_t k_cols = 512;
        const Row row = some_row(k_cols, c.group, c.bits, c.symmetric);
        const auto bytes = static_cast<size_t>(row_bytes(c.format, k_cols));
        std::vector<std::byte> out(bytes + 1, std::byte{0xAA});
        write_integer_row(c.format, {row.codes, row.scales, row.zeros, c.group}, out.data());
        CHECK(out.back() == std::byte{0xAA});
        std::vector<float> values(k_cols);
        decode_rows(c.format, out.data(), 1, static_cast<int64_t>(bytes), k_cols, values.data());
        for (size_t k = 0; k < k_cols; ++k) {
            const size_t g = k / static_cast<size_t>(c.group);
            REQUIRE(values[k] == row.scales[g] * static_cast<float>(row.codes[k] - row.zeros[g]));
        }
    }
}

TEST_CASE("every zero point and every sign of a scale is kept in a byte and a bit") {
    for (const int bits : {4, 8}) {
        const int largest = (1 << bits) - 1;
        for (int zero = 0; zero <= largest + 1; ++zero) {
            for (const uint16_t d : {uint16_t{0x3C00}, uint16_t{0xBC00}, uint16_t{0}, uint16_t{0x8000}}) {
                const ScaleAndZero packed = pack_zero(d, zero, bits);
                const int stored = packed.zero + ((packed.d >> 15) << bits) - 1;
                CAPTURE(bits, zero, d, stored);
                CHECK((packed.d & 0x7FFF) == (d & 0x7FFF));
                CHECK(packed.code_mask == (d >> 15 == 0 ? 0 : largest));
                CHECK(stored == (d >> 15 == 0 ? zero : largest - zero));
            }
        }
    }
}

TEST_CASE("scales of F32 keep all their bits where a format has room for them") {
    Row row = some_row(32, 32, 4, false);
    row.scales[0] = 0.1F;
    for (const Format format : {Format::int4_w32, Format::int8_w32}) {
        std::vector<std::byte> out(static_cast<size_t>(row_bytes(format, 32)));
        write_integer_row(format, {row.codes, row.scales, row.zeros, 32}, out.data());
        std::vector<float> values(32);
        decode_rows(format, out.data(), 1, std::ssize(out), 32, values.data());
        for (size_t k = 0; k < 32; ++k)
            CHECK(values[k] == 0.1F * static_cast<float>(row.codes[k] - row.zeros[0]));
    }
}

TEST_CASE("MXFP8 rows have the weights of codes and exponents") {
    constexpr int64_t k_cols = 96;
    std::mt19937 random(3);
    std::vector<std::byte> codes(k_cols);
    for (std::byte& code : codes) code = static_cast<std::byte>(random() % 0x7FU);
    const std::vector<std::byte> scales = {std::byte{120}, std::byte{1}, std::byte{140}};
    std::vector<std::byte> row(static_cast<size_t>(row_bytes(Format::mxfp8, k_cols)));
    gather_mxfp8_row(codes.data(), scales.data(), k_cols, row.data());
    std::vector<float> values(k_cols);
    decode_rows(Format::mxfp8, row.data(), 1, std::ssize(row), k_cols, values.data());
    for (size_t k = 0; k < k_cols; ++k) {
        const int exponent = std::to_integer<int>(scales[k / 32]) - 127;
        CHECK(values[k] == std::ldexp(e4m3_to_float(std::to_integer<uint8_t>(codes[k])), exponent));
    }
}

}  // namespace minim
