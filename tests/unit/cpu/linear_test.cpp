// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "cpu/cpu_backend.h"
#include "cpu/kernel_tables.h"
#include "support/catch.h"
#include "unit/cpu/support.h"

namespace minim::test {
namespace {

using backend::LinearTask;

struct Setup {
    ThreadPool pool;
    std::unique_ptr<backend::Backend> backend;
    std::unique_ptr<backend::Scratch> scratch;

    Setup(int32_t n_threads, CpuLevel level, int64_t n_rows, int64_t cols)
        : pool(n_threads),
          backend(cpu::make_cpu_backend(pool, level)),
          scratch(backend->reserve({.n_rows = n_rows, .hidden = cols})) {}

    std::vector<float> linear(const TestMatrix& w, const std::vector<float>& h, int64_t n) {
        std::vector<float> y(static_cast<size_t>(n * w.view.rows), 99.0F);
        const LinearTask task = {&w.view, y.data(), false};
        backend->linear(*scratch, h.data(), n, {&task, 1});
        return y;
    }
};

}  // namespace

TEST_CASE("linear of every kind of format agrees with exact arithmetic on the input it reads") {
    const std::vector<Format> formats = {
        Format::f32,    Format::f16,     Format::bf16,  Format::q8_0,   Format::iq4_nl, Format::q4_k,
        Format::q6_k,   Format::iq4_xs,  Format::q4_0,  Format::q5_1,   Format::q5_k,   Format::q2_k,
        Format::iq2_xs, Format::iq3_xxs, Format::mxfp4, Format::iq4_ks, Format::iq5_k};
    Setup setup(2, detected_cpu_level(), 5, 256);
    for (const Format format : formats) {
        for (const int64_t rows : {1, 3, 70}) {
            for (const int64_t n : {1, 5}) {
                INFO(traits(format).name << " rows " << rows << " tokens " << n);
                Random random(static_cast<uint32_t>(rows * 10 + n));
                const TestMatrix w(format, rows, 256, random);
                const std::vector<float> h = random.normal(n * 256);
                const std::vector<float> y = setup.linear(w, h, n);
                const cpu::LinearKernel* kernel = cpu::linear_kernel(cpu::k_scalar_kernels, format);
                const cpu::Activation activation =
                    kernel == nullptr ? cpu::Activation::f32 : kernel->activation;
                const auto input = input_rows(cpu::k_scalar_kernels, activation, h, n, 256);
                const int64_t row_size = cpu::activation_row_bytes(activation, 256);
                for (int64_t r = 0; r < rows; ++r) {
                    const std::vector<float> row = w.decoded_row(r);
                    for (int64_t i = 0; i < n; ++i) {
                        const Dot exact =
                            exact_dot(row, dequantised(activation, input.data() + i * row_size, 256));
                        const auto got = static_cast<double>(y[static_cast<size_t>(i * rows + r)]);
                        REQUIRE(std::abs(got - exact.value) <= 2e-6 * exact.magnitude);
                    }
                }
            }
        }
    }
}

TEST_CASE("a row of linear has the same bits whatever the batch, the threads and the instruction set") {
    for (const Format format :
         {Format::f32, Format::bf16, Format::q8_0, Format::q4_k, Format::iq4_xs, Format::q5_k}) {
        Random random(3);
        const TestMatrix w(format, 133, 512, random);
        const std::vector<float> h = random.normal(9 * 512);
        const std::vector<float> expected = Setup(1, CpuLevel::scalar, 9, 512).linear(w, h, 9);
        for (const CpuLevel level : cpu_levels()) {
            for (const int32_t n_threads : {1, 2, 3}) {
                INFO(traits(format).name << " " << to_string(level) << " threads " << n_threads);
                Setup setup(n_threads, level, 9, 512);
                CHECK(same_bits(setup.linear(w, h, 9), expected));
                for (const int64_t chunk : {1, 2, 5}) {
                    std::vector<float> y;
                    for (int64_t i = 0; i < 9; i += chunk) {
                        const int64_t n = std::min(chunk, 9 - i);
                        const std::vector<float> part(h.begin() + i * 512, h.begin() + (i + n) * 512);
                        const std::vector<float> rows = setup.linear(w, part, n);
                        y.insert(y.end(), rows.begin(), rows.end());
                    }
                    CHECK(same_bits(y, expected));
                }
            }
        }
    }
}

TEST_CASE("packed weights give the bits of the rows they were made of, rows beyond the last panel included") {
    for (const Format format : {Format::q8_0, Format::q4_k, Format::iq5_k, Format::iq2_ks, Format::mxfp4}) {
        for (const int64_t rows : {16, 37, 160}) {
            Random random(static_cast<uint32_t>(rows));
            TestMatrix w(format, rows, 512, random);
            const std::vector<float> h = random.normal(9 * 512);
            Setup setup(2, detected_cpu_level(), 9, 512);
            const std::vector<float> of_rows = setup.linear(w, h, 9);
            REQUIRE(setup.backend->packs(format));
            std::byte* data = w.bytes.data();
            setup.backend->pack({&data, 1}, w.view);
            w.view.packed = true;
            INFO(traits(format).name << " rows " << rows);
            CHECK(same_bits(setup.linear(w, h, 9), of_rows));
            CHECK(same_bits(setup.linear(w, std::vector<float>(h.begin(), h.begin() + 512), 1),
                            std::span(of_rows).first(static_cast<size_t>(rows))));
        }
    }
}

TEST_CASE("a batch of more rows than one block has the bits of its rows alone") {
    constexpr int64_t k_rows = 300;
    for (const Format format : {Format::f32, Format::q8_0}) {
        Random random(12);
        const TestMatrix w(format, 35, 64, random);
        const std::vector<float> h = random.normal(k_rows * 64);
        Setup setup(2, detected_cpu_level(), k_rows, 64);
        const std::vector<float> together = setup.linear(w, h, k_rows);
        for (const int64_t i : {0, 127, 128, 255, 256, 299}) {
            const std::vector<float> row(h.begin() + i * 64, h.begin() + (i + 1) * 64);
            CHECK(same_bits(setup.linear(w, row, 1),
                            std::span(together).subspan(static_cast<size_t>(i) * 35, 35)));
        }
    }
}

TEST_CASE("float weights are not packed") {
    const Setup setup(1, CpuLevel::scalar, 1, 32);
    for (const Format format : {Format::f32, Format::f16, Format::bf16})
        CHECK_FALSE(setup.backend->packs(format));
}

TEST_CASE("several tasks of different formats share one input") {
    Setup setup(2, detected_cpu_level(), 3, 256);
    Random random(11);
    std::vector<TestMatrix> w;
    for (const Format format : {Format::q4_k, Format::q8_0, Format::f32, Format::q6_k, Format::q3_k}) {
        w.emplace_back(format, 40 + static_cast<int64_t>(w.size()), 256, random);
    }
    w[2].view.scale = 0.25F;
    const std::vector<float> h = random.normal(3 * 256);
    std::vector<std::vector<float>> y;
    std::vector<LinearTask> tasks;
    y.reserve(w.size());
    for (const TestMatrix& matrix : w) y.emplace_back(static_cast<size_t>(3 * matrix.view.rows), 1.0F);
    for (size_t t = 0; t < w.size(); ++t) tasks.push_back({&w[t].view, y[t].data(), t % 2 == 1});
    setup.backend->linear(*setup.scratch, h.data(), 3, tasks);
    for (size_t t = 0; t < w.size(); ++t) {
        std::vector<float> alone = setup.linear(w[t], h, 3);
        if (t % 2 == 1) {
            for (float& value : alone) value = 1.0F + value;
        }
        CHECK(same_bits(y[t], alone));
    }
}

TEST_CASE("linear of no rows does nothing") {
    Setup setup(2, detected_cpu_level(), 3, 256);
    Random random(1);
    const TestMatrix w(Format::q4_k, 3, 256, random);
    CHECK(setup.linear(w, {}, 0).empty());
    setup.backend->linear(*setup.scratch, nullptr, 3, {});
}

}  // namespace minim::test
