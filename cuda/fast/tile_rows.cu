// SPDX-License-Identifier: Apache-2.0
#include "cuda/fast/device_thread.h"
#include "cuda/fast/tile_kernels.inl"

namespace minim::cuda::fast {

const TileKernelTable k_tile_unpacked = tile_table_of(BlockList<F16, BF16, FP8_E4M3_B128>());

}  // namespace minim::cuda::fast
