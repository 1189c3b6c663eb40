// SPDX-License-Identifier: Apache-2.0
// The kernels of packed weights: a family of formats is a header of lib/panel/, compiled in a file of its
// own for every instruction set.
#pragma once

#include "cpu/kernels.h"

namespace minim::cpu {

namespace scalar {
extern const LinearKernels k_blocks_of_32, k_unpacked, k_grids, k_k_quants, k_ternary, k_trellis,
    k_value_tables;
}
namespace avx2 {  // x86-64 only
extern const LinearKernels k_blocks_of_32, k_unpacked, k_grids, k_k_quants, k_ternary, k_trellis,
    k_value_tables;
}
namespace avx2_vnni {  // x86-64 only
extern const LinearKernels k_blocks_of_32, k_unpacked, k_grids, k_k_quants, k_ternary, k_trellis,
    k_value_tables;
}
namespace avx512 {  // x86-64 only
extern const LinearKernels k_blocks_of_32, k_unpacked, k_grids, k_k_quants, k_ternary, k_trellis,
    k_value_tables;
}
namespace avx512_vbmi {  // x86-64 only; the other formats are those of avx512
extern const LinearKernels k_blocks_of_32, k_unpacked, k_grids, k_value_tables;
}
namespace neon_dotprod {  // aarch64 only
extern const LinearKernels k_blocks_of_32, k_unpacked, k_grids, k_k_quants, k_ternary, k_trellis,
    k_value_tables;
}
namespace neon_i8mm {  // aarch64 only
extern const LinearKernels k_blocks_of_32, k_unpacked, k_grids, k_k_quants, k_ternary, k_trellis,
    k_value_tables;
}

}  // namespace minim::cpu
