// SPDX-License-Identifier: Apache-2.0
// The tile kernels of a family of formats, over launch(stream, grid, kernel), which the including file defines.
#include "cuda/fast/linear_tile.h"
#include "cuda/fast/tile_kernels.h"

namespace minim::cuda::fast {

template <class P>
void tile_of(Stream stream, const TileCall& call, TileSize size) {
    if (size == TileSize::large) {
        const LinearTileKernel<P, LargeTile> kernel = {call};
        launch(stream, kernel.grid(), kernel);
    } else {
        const LinearTileKernel<P, SmallTile> kernel = {call};
        launch(stream, kernel.grid(), kernel);
    }
}

template <class... Panels>
constexpr TileKernelTable tile_table_of(panel::PanelList<Panels...>) {
    TileKernelTable table = {};
    ((table.by_format[static_cast<size_t>(Panels::Block::format)] = tile_of<Panels>), ...);
    return table;
}

}  // namespace minim::cuda::fast
