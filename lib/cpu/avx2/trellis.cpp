// SPDX-License-Identifier: Apache-2.0
#include "panel/trellis.h"

#include "cpu/avx2/lanes.h"
#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx2 {

constinit const LinearKernels k_trellis = generic::panel_kernels<Lanes>(panel::Trellis<Lanes>());

}  // namespace minim::cpu::avx2
