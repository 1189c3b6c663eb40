// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_backend.h"

#include "base/error.h"
#include "support/catch.h"
#include "unit/cpu/support.h"

namespace minim::test {

TEST_CASE("the CPU backend is called cpu on every instruction set") {
    const ThreadPool pool(1);
    for (const CpuLevel level : cpu_levels()) CHECK(cpu::make_cpu_backend(pool, level)->name() == "cpu");
}

TEST_CASE("a level that the CPU does not have is refused") {
    const ThreadPool pool(1);
    for (const CpuLevel level : {CpuLevel::avx2, CpuLevel::avx2_vnni, CpuLevel::avx512, CpuLevel::avx512_vbmi,
                                 CpuLevel::neon_dotprod, CpuLevel::neon_i8mm}) {
        if (has_cpu_level(level)) {
            CHECK_NOTHROW(cpu::make_cpu_backend(pool, level));
        } else {
            CHECK_THROWS_AS(cpu::make_cpu_backend(pool, level), Error);
        }
    }
}

TEST_CASE("embed decodes the rows asked for, in any format, times the tensor's scale") {
    const ThreadPool pool(2);
    const auto backend = cpu::make_cpu_backend(pool, detected_cpu_level());
    const auto scratch = backend->reserve({.n_rows = 4, .hidden = 256});
    for (const Format format :
         {Format::f32, Format::f16, Format::bf16, Format::q8_0, Format::q4_k, Format::q3_k}) {
        Random random(4);
        TestMatrix table(format, 9, 256, random);
        table.view.scale = 0.5F;
        const std::vector<int32_t> ids = {8, 0, 3, 3};
        std::vector<float> x(4 * 256);
        backend->embed(*scratch, table.view, ids, x.data());
        for (size_t i = 0; i < ids.size(); ++i) {
            std::vector<float> row = table.decoded_row(ids[i]);
            for (float& value : row) value *= 0.5F;
            CHECK(same_bits(std::span(x).subspan(i * 256, 256), row));
        }
        backend->embed(*scratch, table.view, {}, nullptr);
    }
}

TEST_CASE("norm treats each row by itself") {
    const ThreadPool pool(3);
    const auto backend = cpu::make_cpu_backend(pool, detected_cpu_level());
    const auto scratch = backend->reserve({.n_rows = 5, .hidden = 100});
    Random random(5);
    const std::vector<float> x = random.normal(500);
    const std::vector<float> weight = random.normal(100);
    const backend::Vector w = {weight.data(), 100};
    std::vector<float> together(500);
    backend->norm(*scratch, x.data(), 5, w, 1e-6F, together.data());
    for (size_t i = 0; i < 5; ++i) {
        std::vector<float> alone(100);
        cpu::k_scalar_kernels.rms_norm(x.data() + i * 100, 100, weight.data(), 1e-6F, alone.data());
        CHECK(same_bits(std::span(together).subspan(i * 100, 100), alone));
    }
    backend->norm(*scratch, nullptr, 0, w, 1e-6F, nullptr);
}

}  // namespace minim::test
