// SPDX-License-Identifier: Apache-2.0
#include "cuda/fast/device_thread.h"
#include "cuda/fast/panel_kernels.inl"
#include "panel/value_tables.h"

namespace minim::cuda::fast {

const PanelKernelTable k_value_tables = table_of(panel::ValueTables<Lanes>());

}  // namespace minim::cuda::fast
