#include "cuda/fast/device_thread.h"
#include "cuda/fast/panel_kernels.inl"
#include "panel/grids.h"

namespace minim::cuda::fast {

const PanelKernelTable k_grids = table_of(panel::Grids<Lanes>());

}  // namespace minim::cuda::fast
