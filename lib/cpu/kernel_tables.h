// SPDX-License-Identifier: Apache-2.0
// Selects the kernels of a CPU level, and from these the kernel of a weight format.
#pragma once

#include "base/cpu_features.h"
#include "cpu/kernels.h"
#include "format/format.h"

namespace minim::cpu {

// Returns the kernels of a level of cpu_levels(). No level uses BF16 dot products: input rows are never rounded to BF16,
// and splitting them into two BF16 parts costs as much as it saves.
const KernelTable& kernels_for(CpuLevel level) noexcept;

// Returns the kernel of a weight format; null if rows are decoded to floats instead.
const LinearKernel* linear_kernel(const KernelTable& kernels, Format format) noexcept;

// Returns the kernels of a KV format (backend::is_kv_format).
const KvKernels& kv_kernels(const KernelTable& kernels, Format format) noexcept;

}  // namespace minim::cpu
