// SPDX-License-Identifier: Apache-2.0
#include "cpu/avx512_vbmi/grid_panels.h"
#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx512_vbmi {

constinit const LinearKernels k_grids = generic::panel_kernels<Lanes>(GridPanels());

}  // namespace minim::cpu::avx512_vbmi
