// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels.h"

#include "cpu/avx2/simd.h"
#include "cpu/generic/table.h"
#include "cpu/panel_families.h"

namespace minim::cpu {
namespace avx2 {

constinit const LinearKernels k_floats = generic::float_kernels<Simd>();

}  // namespace avx2

#if MINIM_HAS_AVX2
constinit const KernelTable k_avx2_kernels = generic::make_table<avx2::Simd>(
    "avx2", {{&avx2::k_floats, &avx2::k_blocks_of_32, &avx2::k_k_quants, &avx2::k_value_tables,
              &avx2::k_grids, &avx2::k_trellis, &avx2::k_ternary, &avx2::k_unpacked}});
#endif

#if MINIM_HAS_AVX2_VNNI
constinit const KernelTable k_avx2_vnni_kernels = generic::make_table<avx2::Simd>(
    "avx2_vnni",
    {{&avx2::k_floats, &avx2_vnni::k_blocks_of_32, &avx2_vnni::k_k_quants, &avx2_vnni::k_value_tables,
      &avx2_vnni::k_grids, &avx2_vnni::k_trellis, &avx2_vnni::k_ternary, &avx2_vnni::k_unpacked}});
#endif

}  // namespace minim::cpu
