// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernel_tables.h"

namespace minim::cpu {

const KernelTable& kernels_for(CpuLevel level) noexcept {
#if MINIM_HAS_NEON_I8MM
    if (level == CpuLevel::neon_i8mm) return k_neon_i8mm_kernels;
#endif
#if MINIM_HAS_NEON_DOTPROD
    if (level == CpuLevel::neon_dotprod) return k_neon_dotprod_kernels;
#endif
#if MINIM_HAS_AVX512_VBMI
    if (level == CpuLevel::avx512_vbmi) return k_avx512_vbmi_kernels;
#endif
#if MINIM_HAS_AVX512
    if (level == CpuLevel::avx512) return k_avx512_kernels;
#endif
#if MINIM_HAS_AVX2_VNNI
    if (level == CpuLevel::avx2_vnni) return k_avx2_vnni_kernels;
#endif
#if MINIM_HAS_AVX2
    if (level == CpuLevel::avx2) return k_avx2_kernels;
#endif
    static_cast<void>(level);
    return k_scalar_kernels;
}

const LinearKernel* linear_kernel(const KernelTable& kernels, Format format) noexcept {
    for (const LinearKernels* family : kernels.linear.family) {
        if (family == nullptr) break;
        const LinearKernel& kernel = family->by_format[static_cast<size_t>(format)];
        if (kernel.run != nullptr) return &kernel;
    }
    return nullptr;
}

const KvKernels& kv_kernels(const KernelTable& kernels, Format format) noexcept {
    const KvKernels* kv = kernels.kv;
    while (kv->format != format) ++kv;
    return *kv;
}

}  // namespace minim::cpu
