// SPDX-License-Identifier: Apache-2.0
#include "cuda/fast/device_thread.h"
#include "cuda/fast/panel_kernels.inl"
#include "panel/k_quants.h"

namespace minim::cuda::fast {

const PanelKernelTable k_k_quants = table_of(panel::KQuants<Lanes>());

}  // namespace minim::cuda::fast
