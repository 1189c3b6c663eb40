// SPDX-License-Identifier: Apache-2.0
#include "format/encode/kernel_table.h"
#include "format/encode/kernels.h"
#include "format/encode/lanes.h"

namespace minim::encoding {

RowKernel scalar_kernel(Format format) noexcept {
    return kernel_of<scalar::Lanes>(format);
}

const FolderKernels& scalar_folder_kernels() noexcept {
    return k_folder_kernels<scalar::Lanes>;
}

}  // namespace minim::encoding
