// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels.h"

#include "cpu/generic/table.h"
#include "cpu/neon_dotprod/simd.h"
#include "cpu/panel_families.h"

namespace minim::cpu {
namespace neon_dotprod {

constinit const LinearKernels k_floats = generic::float_kernels<Simd>();

}  // namespace neon_dotprod

#if MINIM_HAS_NEON_DOTPROD
constinit const KernelTable k_neon_dotprod_kernels = generic::make_table<neon_dotprod::Simd>(
    "neon_dotprod", {{&neon_dotprod::k_floats, &neon_dotprod::k_blocks_of_32, &neon_dotprod::k_k_quants,
                      &neon_dotprod::k_value_tables, &neon_dotprod::k_grids, &neon_dotprod::k_trellis,
                      &neon_dotprod::k_ternary, &neon_dotprod::k_unpacked}});
#endif

#if MINIM_HAS_NEON_I8MM
constinit const KernelTable k_neon_i8mm_kernels = generic::make_table<neon_dotprod::Simd>(
    "neon_i8mm",
    {{&neon_dotprod::k_floats, &neon_i8mm::k_blocks_of_32, &neon_i8mm::k_k_quants, &neon_i8mm::k_value_tables,
      &neon_i8mm::k_grids, &neon_i8mm::k_trellis, &neon_i8mm::k_ternary, &neon_i8mm::k_unpacked}});
#endif

}  // namespace minim::cpu
