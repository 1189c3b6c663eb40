// SPDX-License-Identifier: Apache-2.0
#include "panel/k_quants.h"

#include "cpu/avx2/lanes.h"
#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx2 {

constinit const LinearKernels k_k_quants = generic::panel_kernels<Lanes>(panel::KQuants<Lanes>());

}  // namespace minim::cpu::avx2
