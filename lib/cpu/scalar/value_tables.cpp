// SPDX-License-Identifier: Apache-2.0
#include "panel/value_tables.h"

#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"
#include "cpu/scalar/lanes.h"

namespace minim::cpu::scalar {

constinit const LinearKernels k_value_tables = generic::panel_kernels<Lanes>(panel::ValueTables<Lanes>());

}  // namespace minim::cpu::scalar
