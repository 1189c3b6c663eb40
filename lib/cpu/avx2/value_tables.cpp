// SPDX-License-Identifier: Apache-2.0
#include "panel/value_tables.h"

#include "cpu/avx2/lanes.h"
#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx2 {

constinit const LinearKernels k_value_tables = generic::panel_kernels<Lanes>(panel::ValueTables<Lanes>());

}  // namespace minim::cpu::avx2
