// SPDX-License-Identifier: Apache-2.0
#include "cuda/fast/device_thread.h"
#include "cuda/fast/panel_kernels.inl"
#include "panel/ternary.h"

namespace minim::cuda::fast {

const PanelKernelTable k_ternary = table_of(panel::Ternary<Lanes>());

}  // namespace minim::cuda::fast
