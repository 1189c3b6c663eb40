#include "cpu/generic/rows.h"

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "cpu/kernel_tables.h"
#include "format/encode.h"
#include "support/catch.h"
#include "unit/cpu/support.h"

namespace minim::test {
namespace {

const std::vector<int64_t> k_sizes = {1, 2, 15, 16, 17, 31, 32, 33, 128, 255, 1000};

}  // namespace

TEST_CASE("rms_norm agrees with double precision and has the same bits on every instruction set") {
    for (const int64_t n : k_sizes) {
        Random random(static_cast<uint32_t>(n));
        const std::vector<float> x = random.normal(n, 3.0F);
        const std::vector<float> weight = random.normal(n);
        double squares = 0.0;
        for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
        const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
        std::vector<float> first;
        for (const cpu::KernelTable* kernels : kernel_tables()) {
            std::vector<float> h = x;
            kernels->rms_norm(h.data(), n, weight.data(), 1e-6F, h.data());
            if (first.empty()) first = h;
            CHECK(same_bits(h, first));
            for (size_t i = 0; i < h.size(); ++i) {
                const double exact = static_cast<double>(x[i]) * factor * static_cast<double>(weight[i]);
                REQUIRE(static_cast<double>(h[i]) == Approx(exact).epsilon(1e-6).margin(1e-12));
            }
        }
    }
}

TEST_CASE("rms_norm of zeros is zero and of no elements touches nothing") {
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        std::vector<float> h(20, 7.0F);
        const std::vector<float> zeros(20, 0.0F);
        kernels->rms_norm(zeros.data(), 20, h.data(), 1e-6F, h.data());
        CHECK(h == zeros);
        kernels->rms_norm(nullptr, 0, nullptr, 1e-6F, nullptr);
    }
}

TEST_CASE("add_scaled adds with one rounding") {
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        for (const int64_t n : k_sizes) {
            Random random(static_cast<uint32_t>(n));
            const std::vector<float> x = random.normal(n);
            const std::vector<float> y = random.normal(n);
            std::vector<float> result = y;
            kernels->add_scaled(x.data(), 0.3F, n, result.data());
            for (size_t i = 0; i < result.size(); ++i) REQUIRE(result[i] == std::fma(0.3F, x[i], y[i]));
        }
    }
}

TEST_CASE("narrow_f16 rounds to nearest even as half.h does") {
    std::vector<float> x = Random(3).normal(3001, 300.0F);
    for (const float value : {0.0F, -0.0F, 65504.0F, 65519.99F, 65520.0F, 1e30F, -1e30F, 5.96e-8F, 2.98e-8F,
                              2.99e-8F, 6.1e-5F, 1e-9F, 1.00048828125F, 1.00146484375F}) {
        x.push_back(value);
    }
    const auto n = static_cast<int64_t>(x.size());
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        std::vector<uint16_t> halves(x.size());
        kernels->narrow_f16(x.data(), n, reinterpret_cast<std::byte*>(halves.data()));
        for (size_t i = 0; i < x.size(); ++i) REQUIRE(halves[i] == float_to_f16(x[i]));
    }
}

TEST_CASE("weighted_sum adds rows in order, whatever the columns, sums and format") {
    for (const Format format : {Format::f32, Format::f16, Format::bf16, Format::q8_0}) {
        const int32_t block = traits(format).block_elems;
        for (const int64_t cols : {1, 16, 33, 64, 128}) {
            if (cols % block != 0) continue;
            const int64_t row_bytes = cols / block * traits(format).block_bytes;
            for (const int64_t n_rows : {0, 1, 3, 64}) {
                Random random(7);
                const std::vector<float> exact = random.normal(n_rows * cols);
                std::vector<std::byte> rows(static_cast<size_t>(n_rows * row_bytes));
                std::vector<float> kept(exact.size());
                for (int64_t r = 0; r < n_rows; ++r) {
                    std::byte* row = rows.data() + r * row_bytes;
                    row_encoder(format)(exact.data() + r * cols, cols, row);
                    traits(format).decode_row(row, cols, kept.data() + r * cols);
                }
                for (const int64_t n_sums : {1, 2, 6, 9}) {
                    const std::vector<float> weight = random.normal(n_sums * 100);
                    const std::vector<float> start = random.normal(n_sums * cols);
                    std::vector<float> expected = start;
                    for (int64_t s = 0; s < n_sums; ++s) {
                        for (int64_t c = 0; c < cols; ++c) {
                            float& sum = expected[static_cast<size_t>(s * cols + c)];
                            for (int64_t r = 0; r < n_rows; ++r) {
                                sum = std::fma(weight[static_cast<size_t>(s * 100 + r)],
                                               kept[static_cast<size_t>(r * cols + c)], sum);
                            }
                        }
                    }
                    for (const cpu::KernelTable* kernels : kernel_tables()) {
                        std::vector<float> y = start;
                        const cpu::WeightedSumArgs args = {.rows = rows.data(),
                                                           .row_bytes = row_bytes,
                                                           .n_rows = n_rows,
                                                           .cols = cols,
                                                           .weight = weight.data(),
                                                           .weight_stride = 100,
                                                           .n_sums = n_sums,
                                                           .y = y.data(),
                                                           .y_stride = cols};
                        cpu::kv_kernels(*kernels, format).weighted_sum(args);
                        REQUIRE(same_bits(y, expected));
                    }
                }
            }
        }
    }
}

}  // namespace minim::test
