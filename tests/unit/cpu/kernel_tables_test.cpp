// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernel_tables.h"

#include "support/catch.h"
#include "unit/cpu/support.h"

namespace minim::test {

TEST_CASE("each level has kernels of its name") {
    for (const CpuLevel level : architecture_cpu_levels()) {
        if (is_built(level)) CHECK(cpu::kernels_for(level).name == to_string(level));
    }
}

TEST_CASE("every format that holds weights has a kernel, with the input it is specified for") {
    for (const cpu::KernelTable* kernels : kernel_tables()) {
        for (const FormatTraits& format : all_formats()) {
            INFO(kernels->name << " " << format.name);
            const cpu::LinearKernel* kernel = cpu::linear_kernel(*kernels, format.format);
            REQUIRE((kernel != nullptr) == (format.decode_row != nullptr));
            if (kernel == nullptr) continue;
            CHECK(kernel->activation ==
                  (takes_floats(format.format) ? cpu::Activation::f32 : cpu::Activation::q8));
        }
    }
}

}  // namespace minim::test
