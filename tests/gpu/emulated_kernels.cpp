// SPDX-License-Identifier: Apache-2.0
// The kernels of cuda/fast/ on emulated threads.
#include "cuda/fast/grid_panels.h"
#include "cuda/fast/operations.inl"
#include "cuda/fast/panel_kernels.inl"
#include "gpu/emulated_thread.h"
#include "panel/blocks_of_32.h"
#include "panel/k_quants.h"
#include "panel/ternary.h"
#include "panel/trellis.h"
#include "panel/value_tables.h"

namespace minim::cuda::fast {

const PanelKernelTable k_blocks_of_32 = table_of(panel::BlocksOf32<Lanes>());
const PanelKernelTable k_k_quants = table_of(panel::KQuants<Lanes>());
const PanelKernelTable k_value_tables = table_of(panel::ValueTables<Lanes>());
const PanelKernelTable k_grids = table_of(GridPanels());
const PanelKernelTable k_trellis = table_of(panel::Trellis<Lanes>());
const PanelKernelTable k_ternary = table_of(panel::Ternary<Lanes>());

}  // namespace minim::cuda::fast
