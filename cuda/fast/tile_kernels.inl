// SPDX-License-Identifier: Apache-2.0
// The tile kernels of a family of packed formats, or of others, over launch(stream, grid, kernel), which the including file defines.
#include "cuda/fast/linear_tile.h"
#include "cuda/fast/tile_kernels.h"
#include "cuda/fast/tile_panels.h"
#include "cuda/fast/tile_rows.h"
#include "format/blocks.h"

namespace minim::cuda::fast {

template <class Weights>
void tile_of(Stream stream, const TileCall& call, TileSize size) {
    if (size == TileSize::large) {
        const LinearTileKernel<Weights, LargeTile> kernel = {call};
        launch(stream, kernel.grid(), kernel);
    } else {
        const LinearTileKernel<Weights, SmallTile> kernel = {call};
        launch(stream, kernel.grid(), kernel);
    }
}

template <class... Panels>
constexpr TileKernelTable tile_table_of(panel::PanelList<Panels...>) {
    TileKernelTable table = {};
    ((table.by_format[static_cast<size_t>(Panels::Block::format)] = tile_of<TilePanels<Panels>>), ...);
    return table;
}
template <class... Blocks>
constexpr TileKernelTable tile_table_of(BlockList<Blocks...>) {
    TileKernelTable table = {};
    ((table.by_format[static_cast<size_t>(Blocks::format)] = tile_of<TileRows<Blocks>>), ...);
    return table;
}

}  // namespace minim::cuda::fast
