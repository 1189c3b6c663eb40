// SPDX-License-Identifier: Apache-2.0
// The encoders of one row, compiled for each instruction set that has lanes of its own. All give the same bytes.
#pragma once

#include <cstdint>

#include "format/encode/elements.h"
#include "format/encode/folders.h"
#include "format/format.h"

namespace minim::encoding {

// Encodes a row. Returns k_encoded, or the first column of a block whose scale the format cannot hold.
using RowKernel = int64_t (*)(const RowTask& row);

// Encoders of rows of quantised folders (folders.h), codes and scales apart.
struct FolderKernels {
    // Codes of 4 bits, two in a byte, that of the even column lower; E4M3 or E8M0 scales of each 16 or 32 columns.
    int64_t (*nvfp4)(const RowTask& row, uint8_t* codes, uint8_t* scales);
    int64_t (*mxfp4)(const RowTask& row, uint8_t* codes, uint8_t* scales);
    int64_t (*integers)(const RowTask& row, const IntegerGroups& groups, uint8_t* codes, float* scales,
                        uint8_t* zeros);
};

// Return the kernel of a format, null if there is none.
RowKernel scalar_kernel(Format format) noexcept;
const FolderKernels& scalar_folder_kernels() noexcept;
#if MINIM_HAS_AVX2_ENCODERS
RowKernel avx2_kernel(Format format) noexcept;
const FolderKernels& avx2_folder_kernels() noexcept;
#endif

}  // namespace minim::encoding
