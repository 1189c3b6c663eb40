// SPDX-License-Identifier: Apache-2.0
#include "panel/value_tables.h"

#include "cpu/avx2_vnni/lanes.h"
#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx2_vnni {

constinit const LinearKernels k_value_tables = generic::panel_kernels<Lanes>(panel::ValueTables<Lanes>());

}  // namespace minim::cpu::avx2_vnni
