// SPDX-License-Identifier: Apache-2.0
#include "cuda/fast/device_thread.h"
#include "cuda/fast/panel_kernels.inl"
#include "panel/blocks_of_32.h"

namespace minim::cuda::fast {

const PanelKernelTable k_blocks_of_32 = table_of(panel::BlocksOf32<Lanes>());

}  // namespace minim::cuda::fast
