// SPDX-License-Identifier: Apache-2.0
#include "panel/k_quants.h"

#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"
#include "cpu/scalar/lanes.h"

namespace minim::cpu::scalar {

constinit const LinearKernels k_k_quants = generic::panel_kernels<Lanes>(panel::KQuants<Lanes>());

}  // namespace minim::cpu::scalar
