// SPDX-License-Identifier: Apache-2.0
#include "panel/grids.h"

#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"
#include "cpu/scalar/lanes.h"

namespace minim::cpu::scalar {

constinit const LinearKernels k_grids = generic::panel_kernels<Lanes>(panel::Grids<Lanes>());

}  // namespace minim::cpu::scalar
