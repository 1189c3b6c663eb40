#include "cpu/generic/quantize.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "cpu/scalar/simd.h"
#include "support/catch.h"
#include "unit/cpu/support.h"
#include "unit/format/golden.h"

namespace minim::test {
namespace {

using cpu::Activation;
using cpu::activation_layout;
using cpu::ActivationLayout;

float scale_of(const std::vector<std::byte>& row, const ActivationLayout& layout, int64_t block) {
    float scale = 0.0F;
    std::memcpy(&scale, row.data() + layout.scale_offset + block * 4, sizeof(scale));
    return scale;
}

template <typename T>
T read(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(value));
    return value;
}

// Codes as the reference encoder of Q8_0 makes them; the scale rounds to its scale.
bool has_reference_codes(const std::vector<std::byte>& row, const std::byte* reference, int64_t cols) {
    const ActivationLayout layout = activation_layout(Activation::q8, cols);
    for (int64_t b = 0; b < cols / 32; ++b) {
        const std::byte* block = reference + b * 34;
        if (float_to_f16(scale_of(row, layout, b)) != read<uint16_t>(block)) return false;
        if (std::memcmp(row.data() + b * 32, block + 2, 32) != 0) return false;
    }
    return true;
}

bool has_true_sums(const std::vector<std::byte>& row, int64_t cols) {
    const ActivationLayout layout = activation_layout(Activation::q8, cols);
    for (int64_t g = 0; g < cols / 16; ++g) {
        int sum = 0;
        for (int64_t i = 16 * g; i < 16 * g + 16; ++i)
            sum += static_cast<int8_t>(row[static_cast<size_t>(i)]);
        if (read<int16_t>(row.data() + layout.sum_offset + 2 * g) != sum) return false;
        const float scaled_sum = scale_of(row, layout, g / 2) * static_cast<float>(sum);
        if (!same_bits(read<float>(row.data() + layout.scaled_sum_offset + 4 * g), scaled_sum)) return false;
    }
    return true;
}

}  // namespace

TEST_CASE("the codes of quantised inputs equal those of the reference encoder") {
    const GoldenFile golden = golden_other("encode_ref");
    const auto source = golden.section<float>("src");
    const auto q8_0 = golden.section<std::byte>("Q8_0");
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        for (int64_t r = 0; r < 24; ++r) {
            INFO(kernels->name << " row " << r);
            const std::span<const float> x(source.data() + r * 512, 512);
            const auto row = input_rows(*kernels, Activation::q8, x, 1, 512);
            CHECK(has_reference_codes(row, q8_0.data() + r * 544, 512));
            CHECK(has_true_sums(row, 512));
        }
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
            const auto expected = input_rows(cpu::k_scalar_kernels, Activation::q8, x, 1, cols);
            for (const cpu::KernelTable* kernels : kernel_tables()) {
                const auto row = input_rows(*kernels, Activation::q8, x, 1, cols);
                INFO(kernels->name << " cols " << cols << " trial " << trial);
                // A NaN scale may differ in its payload; all else is equal.
                const ActivationLayout layout = activation_layout(Activation::q8, cols);
                REQUIRE(std::equal(row.begin(), row.begin() + layout.scale_offset, expected.begin()));
                for (int64_t b = 0; b < cols / 32; ++b) {
                    REQUIRE(same_bits(scale_of(row, layout, b), scale_of(expected, layout, b)));
                }
                for (int64_t i = 0; i < layout.scale_offset; ++i) {
                    REQUIRE(static_cast<int8_t>(row[static_cast<size_t>(i)]) >= -127);
                }
                REQUIRE(has_true_sums(row, cols));
            }
        }
    }
}

TEST_CASE("a NaN among the inputs makes the block's scale NaN, so that it is seen in the result") {
    std::vector<float> x(256, 1.0F);
    x[77] = std::nanf("");
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        const auto row = input_rows(*kernels, Activation::q8, x, 1, 256);
        CHECK(std::isnan(scale_of(row, activation_layout(Activation::q8, 256), 2)));
        CHECK(scale_of(row, activation_layout(Activation::q8, 256), 1) == 1.0F / 127.0F);
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
