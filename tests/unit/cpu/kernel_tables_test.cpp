#include "cpu/kernel_tables.h"

#include "support/catch.h"
#include "unit/cpu/support.h"

namespace minim::test {

TEST_CASE("each level has kernels of its name, and AVX-512 BF16 those of AVX-512") {
    CHECK(std::string(cpu::kernels_for(CpuLevel::scalar).name) == "scalar");
#if defined(__x86_64__)
    CHECK(std::string(cpu::kernels_for(CpuLevel::avx2).name) == "avx2");
    CHECK(std::string(cpu::kernels_for(CpuLevel::avx512).name) == "avx512");
    CHECK(std::string(cpu::kernels_for(CpuLevel::avx512_bf16).name) == "avx512");
#endif
}

TEST_CASE("the formats of the fast linears have kernels with the input they are specified for") {
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        for (const Format format : {Format::f32, Format::f16, Format::bf16}) {
            CHECK(cpu::linear_kernel(*kernels, format)->activation == cpu::Activation::f32);
        }
        for (const Format format :
             {Format::q8_0, Format::iq4_nl, Format::q4_k, Format::q6_k, Format::iq4_xs}) {
            CHECK(cpu::linear_kernel(*kernels, format)->activation == cpu::Activation::q8);
        }
        CHECK(cpu::linear_kernel(*kernels, Format::iq2_s) == nullptr);
    }
}

}  // namespace minim::test
