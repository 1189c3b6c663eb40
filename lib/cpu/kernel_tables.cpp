#include "cpu/kernel_tables.h"

namespace minim::cpu {

const KernelTable& kernels_for(CpuLevel level) noexcept {
#if defined(__x86_64__)
    if (level >= CpuLevel::avx512) return k_avx512_kernels;
    if (level == CpuLevel::avx2) return k_avx2_kernels;
#endif
    static_cast<void>(level);
    return k_scalar_kernels;
}

const LinearKernel* linear_kernel(const KernelTable& kernels, Format format) noexcept {
    switch (format) {
        case Format::f32:
            return &kernels.linear_f32;
        case Format::f16:
            return &kernels.linear_f16;
        case Format::bf16:
            return &kernels.linear_bf16;
        case Format::q8_0:
            return &kernels.linear_q8_0;
        case Format::iq4_nl:
            return &kernels.linear_iq4_nl;
        case Format::q4_k:
            return &kernels.linear_q4_k;
        case Format::q6_k:
            return &kernels.linear_q6_k;
        case Format::iq4_xs:
            return &kernels.linear_iq4_xs;
        default:
            return nullptr;
    }
}

}  // namespace minim::cpu
