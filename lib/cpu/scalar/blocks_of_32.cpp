// SPDX-License-Identifier: Apache-2.0
#include "panel/blocks_of_32.h"

#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"
#include "cpu/scalar/lanes.h"

namespace minim::cpu::scalar {

constinit const LinearKernels k_blocks_of_32 = generic::panel_kernels<Lanes>(panel::BlocksOf32<Lanes>());

}  // namespace minim::cpu::scalar
