// SPDX-License-Identifier: Apache-2.0
#include "panel/ternary.h"

#include "cpu/avx2/lanes.h"
#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx2 {

constinit const LinearKernels k_ternary = generic::panel_kernels<Lanes>(panel::Ternary<Lanes>());

}  // namespace minim::cpu::avx2
