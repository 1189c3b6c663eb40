// SPDX-License-Identifier: Apache-2.0
#include "cuda/fast/device_thread.h"
#include "cuda/fast/grid_panels.h"
#include "cuda/fast/panel_kernels.inl"

namespace minim::cuda::fast {

const PanelKernelTable k_grids = table_of(GridPanels());

}  // namespace minim::cuda::fast
