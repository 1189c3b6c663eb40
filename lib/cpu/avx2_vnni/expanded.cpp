// SPDX-License-Identifier: Apache-2.0
#include "panel/expanded.h"

#include "cpu/avx2_vnni/lanes.h"
#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx2_vnni {

constinit const LinearKernels k_expanded = generic::panel_kernels<Lanes>(panel::Expanded<Lanes>());

}  // namespace minim::cpu::avx2_vnni
