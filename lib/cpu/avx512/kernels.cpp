// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels.h"

#include "cpu/avx512/simd.h"
#include "cpu/generic/table.h"
#include "cpu/panel_families.h"

namespace minim::cpu {
namespace avx512 {

constinit const LinearKernels k_floats = generic::float_kernels<Simd>();

}  // namespace avx512

constinit const KernelTable k_avx512_kernels = generic::make_table<avx512::Simd>(
    "avx512", {{&avx512::k_floats, &avx512::k_blocks_of_32, &avx512::k_k_quants, &avx512::k_value_tables,
                &avx512::k_grids, &avx512::k_trellis, &avx512::k_ternary, &avx512::k_unpacked}});

#if MINIM_HAS_AVX512_VBMI
constinit const KernelTable k_avx512_vbmi_kernels = generic::make_table<avx512::Simd>(
    "avx512_vbmi", {{&avx512_vbmi::k_value_tables, &avx512_vbmi::k_grids, &avx512_vbmi::k_blocks_of_32,
                     &avx512_vbmi::k_unpacked, &avx512::k_floats, &avx512::k_blocks_of_32,
                     &avx512::k_k_quants, &avx512::k_value_tables, &avx512::k_grids, &avx512::k_trellis,
                     &avx512::k_ternary, &avx512::k_unpacked}});
#endif

}  // namespace minim::cpu
