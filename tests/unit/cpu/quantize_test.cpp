// SPDX-License-Identifier: Apache-2.0
#include "cpu/generic/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/half.h"
#include "cpu/scalar/simd.h"
#include "support/catch.h"
#include "unit/cpu/support.h"
#include "unit/format/golden.h"

namespace minim::test {
namespace {

using cpu::Activation;
using cpu::Q8Block;

std::vector<Q8Block> blocks_of(const std::vector<std::byte>& row, int64_t cols) {
    std::vector<Q8Block> blocks(static_cast<size_t>(cols / 32));
    if (cols > 0) std::memcpy(blocks.data(), row.data(), blocks.size() * sizeof(Q8Block));
    return blocks;
}

std::vector<Q8Block> quantised(const cpu::KernelTable& kernels, std::span<const float> x) {
    const auto cols = static_cast<int64_t>(x.size());
    return blocks_of(input_rows(kernels, Activation::q8, x, 1, cols), cols);
}

template <typename T>
T read(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(value));
    return value;
}

// Returns the largest magnitude of an element or of the sum of two neighbours.
float largest_of_pairs(std::span<const float> x) {
    float largest = 0.0F;
    for (size_t i = 0; i < x.size(); i += 2) {
        largest = std::max({largest, std::abs(x[i]), std::abs(x[i + 1]), std::abs(x[i] + x[i + 1])});
    }
    return largest;
}

bool has_bounded_pairs(std::span<const Q8Block> row) {
    for (const Q8Block& block : row) {
        for (size_t i = 0; i < 32; i += 2) {
            if (std::abs(block.code[i] + block.code[i + 1]) > 128) return false;
        }
    }
    return true;
}

// Returns whether each code is the nearest one for the block's scale.
bool is_near(const Q8Block& block, std::span<const float> x) {
    for (size_t i = 0; i < 32; ++i) {
        const float code = static_cast<float>(block.code[i]);
        if (std::abs(code * block.scale - x[i]) > 0.5001F * block.scale) return false;
    }
    return true;
}

// Returns whether the codes are those of the reference encoder's Q8_0 block, and the scale rounds to its scale.
bool equals_reference(const Q8Block& block, const std::byte* reference) {
    return float_to_f16(block.scale) == read<uint16_t>(reference) &&
           std::memcmp(block.code, reference + 2, 32) == 0;
}

bool has_true_sums(std::span<const Q8Block> row) {
    for (const Q8Block& block : row) {
        for (size_t g = 0; g < 2; ++g) {
            const int sum = std::accumulate(block.code + 16 * g, block.code + 16 * g + 16, 0);
            if (block.sum[g] != sum) return false;
            if (!same_bits(block.scaled_sum[g], block.scale * static_cast<float>(sum))) return false;
        }
        if (!same_bits(block.scaled_total, block.scaled_sum[0] + block.scaled_sum[1])) return false;
        if (block.unsigned_offset != -128 * (block.sum[0] + block.sum[1])) return false;
    }
    return true;
}

}  // namespace

TEST_CASE(
    "codes equal those of the reference encoder of Q8_0 unless two neighbours add up to more than it "
    "allows") {
    const GoldenFile golden = golden_other("encode_ref");
    const auto source = golden.section<float>("src");
    const auto q8_0 = golden.section<std::byte>("Q8_0");
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        int64_t n_equal = 0;
        for (int64_t r = 0; r < 24; ++r) {
            const std::span<const float> x(source.data() + r * 512, 512);
            const std::vector<Q8Block> row = quantised(*kernels, x);
            CHECK(has_true_sums(row));
            CHECK(has_bounded_pairs(row));
            for (size_t b = 0; b < row.size(); ++b) {
                INFO(kernels->name << " row " << r << " block " << b);
                const auto elements = x.subspan(32 * b, 32);
                const float largest = largest_of_pairs(elements);
                CHECK(row[b].scale == largest / 127.0F);
                CHECK(is_near(row[b], elements));
                if (std::ranges::none_of(elements, [&](float e) { return std::abs(e) == largest; })) continue;
                CHECK(equals_reference(row[b], q8_0.data() + r * 544 + 34 * static_cast<int64_t>(b)));
                ++n_equal;
            }
        }
        CHECK(n_equal > 20);
    }
}

TEST_CASE("every instruction set makes the same codes, for numbers of any kind") {
    for (const int64_t cols : {0, 32, 64, 96, 256, 512, 768}) {
        Random random(static_cast<uint32_t>(cols));
        for (int trial = 0; trial < 50; ++trial) {
            std::vector<float> x = random.normal(cols, std::ldexp(1.0F, trial * 5 - 140));
            // Rows with a NaN, an infinity, opposite extremes, and zeros.
            if (cols > 0 && trial % 5 == 1) x[static_cast<size_t>(random.below(cols))] = std::nanf("");
            if (cols > 0 && trial % 5 == 2)
                x[static_cast<size_t>(random.below(cols))] = -std::numeric_limits<float>::infinity();
            if (cols > 0 && trial % 5 == 3) x[0] = -(x[static_cast<size_t>(cols - 1)] = 100.0F);
            if (trial % 25 == 4) std::fill(x.begin(), x.end(), 0.0F);
            const std::vector<Q8Block> expected = quantised(cpu::k_scalar_kernels, x);
            for (const cpu::KernelTable* kernels : kernel_tables()) {
                const std::vector<Q8Block> row = quantised(*kernels, x);
                INFO(kernels->name << " cols " << cols << " trial " << trial);
                // A NaN scale may differ in its payload; all else is equal.
                for (size_t b = 0; b < row.size(); ++b) {
                    REQUIRE(std::ranges::equal(row[b].code, expected[b].code));
                    REQUIRE(same_bits(row[b].scale, expected[b].scale));
                    REQUIRE(std::ranges::min(row[b].code) >= -127);
                }
                REQUIRE(has_true_sums(row));
                REQUIRE(has_bounded_pairs(row));
            }
        }
    }
}

TEST_CASE("a NaN among the inputs makes the block's scale NaN, so that it is seen in the result") {
    std::vector<float> x(256, 1.0F);
    x[77] = std::nanf("");
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        const std::vector<Q8Block> row = quantised(*kernels, x);
        CHECK(std::isnan(row[2].scale));
        CHECK(row[1].scale == 2.0F / 127.0F);
    }
}

TEST_CASE("codes round halves away from zero, at every float that could be one") {
    using Simd = cpu::scalar::Simd;
    for (int step = -1024; step <= 1024; ++step) {
        const float middle = static_cast<float>(step) / 8.0F;
        if (std::abs(middle) > 127.0F) continue;
        for (const float x : {std::nextafter(middle, -200.0F), middle, std::nextafter(middle, 200.0F)}) {
            if (std::abs(x) > 127.0F) continue;
            int8_t code[16];
            Simd::store_i8(code, cpu::generic::towards_half_away<Simd>(Simd::all(x)));
            REQUIRE(static_cast<float>(code[0]) == std::round(x));
        }
    }
}

}  // namespace minim::test
