// SPDX-License-Identifier: Apache-2.0
#include "cuda/fast/device_thread.h"
#include "cuda/fast/panel_kernels.inl"
#include "panel/trellis.h"

namespace minim::cuda::fast {

const PanelKernelTable k_trellis = table_of(panel::Trellis<Lanes>());

}  // namespace minim::cuda::fast
