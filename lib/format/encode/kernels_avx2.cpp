// SPDX-License-Identifier: Apache-2.0
#include "format/encode/kernel_table.h"
#include "format/encode/kernels.h"
#include "format/encode/lanes_avx2.h"

namespace minim::encoding {

RowKernel avx2_kernel(Format format) noexcept {
    return kernel_of<avx2::Lanes>(format);
}

const FolderKernels& avx2_folder_kernels() noexcept {
    return k_folder_kernels<avx2::Lanes>;
}

}  // namespace minim::encoding
