// SPDX-License-Identifier: Apache-2.0
#include "panel/ternary.h"

#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"
#include "cpu/scalar/lanes.h"

namespace minim::cpu::scalar {

constinit const LinearKernels k_ternary = generic::panel_kernels<Lanes>(panel::Ternary<Lanes>());

}  // namespace minim::cpu::scalar
