// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels.h"

#include "cpu/generic/table.h"
#include "cpu/panel_families.h"
#include "cpu/scalar/simd.h"

namespace minim::cpu {
namespace scalar {

constinit const LinearKernels k_floats = generic::float_kernels<Simd>();

}  // namespace scalar

constinit const KernelTable k_scalar_kernels = generic::make_table<scalar::Simd>(
    "scalar", {{&scalar::k_floats, &scalar::k_blocks_of_32, &scalar::k_k_quants, &scalar::k_value_tables,
                &scalar::k_grids, &scalar::k_trellis, &scalar::k_ternary, &scalar::k_unpacked}});

}  // namespace minim::cpu
