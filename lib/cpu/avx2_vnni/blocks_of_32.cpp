// SPDX-License-Identifier: Apache-2.0
#include "panel/blocks_of_32.h"

#include "cpu/avx2_vnni/lanes.h"
#include "cpu/generic/linear_panel.h"
#include "cpu/panel_families.h"

namespace minim::cpu::avx2_vnni {

constinit const LinearKernels k_blocks_of_32 = generic::panel_kernels<Lanes>(panel::BlocksOf32<Lanes>());

}  // namespace minim::cpu::avx2_vnni
