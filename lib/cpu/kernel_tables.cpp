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
    const LinearKernel& kernel = kernels.linear[static_cast<size_t>(format)];
    return kernel.run == nullptr ? nullptr : &kernel;
}

}  // namespace minim::cpu
