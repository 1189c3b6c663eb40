// Which kernels serve a processor, and which of them a weight format.
#pragma once

#include "base/cpu_features.h"
#include "cpu/kernels.h"
#include "format/format.h"

namespace minim::cpu {

// The kernels of a level this machine has. None uses the dots of BF16: input rows are never rounded to it, and splitting them
// into two BF16 parts costs as much as it saves.
const KernelTable& kernels_for(CpuLevel level) noexcept;

// The kernel of a weight format; null where rows are decoded to floats instead.
const LinearKernel* linear_kernel(const KernelTable& kernels, Format format) noexcept;

// The kernels of a KV format (backend::is_kv_format).
const KvKernels& kv_kernels(const KernelTable& kernels, Format format) noexcept;

}  // namespace minim::cpu
