// SPDX-License-Identifier: Apache-2.0
#include "panel/trellis.h"

#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"
#include "cpu/scalar/lanes.h"

namespace minim::cpu::scalar {

constinit const LinearKernels k_trellis = generic::panel_kernels<Lanes>(panel::Trellis<Lanes>());

}  // namespace minim::cpu::scalar
