// SPDX-License-Identifier: Apache-2.0
// The sizes of the tile kernel (linear_tile.h), and where things lie in its shared memory: two stages of inputs and of weights, each
// warp's own memory, and what the block shares.
#pragma once

#include "cuda/fast/operations.h"
#include "cuda/fast/panel_dot.h"

namespace minim::cuda::fast {

struct SmallTile {
    static constexpr int k_warps = 4;
    static constexpr TileSize k_size = TileSize::small;
    static constexpr int k_max_bytes = k_max_shared_bytes;
};
struct LargeTile {
    static constexpr int k_warps = 8;
    static constexpr TileSize k_size = TileSize::large;
    static constexpr int k_max_bytes = k_large_shared_bytes;
};

// A warp's parts of shared memory, for its weights (tile_panels.h, tile_rows.h).
struct TileWarpMemory {
    std::byte* own;            // [Weights::k_own_bytes]
    const std::byte* headers;  // [Weights::k_headers_bytes]
    const std::byte* table;    // of the block
};

// Where things lie in shared memory.
template <class Weights, class Size>
struct TileMemory {
    static constexpr int k_inputs = tile_inputs(Size::k_size);
    static constexpr int k_weight_bytes = Size::k_warps * Weights::k_warp_bytes;  // of a stage

    static constexpr int k_other_bytes = 2 * k_weight_bytes +
                                         Size::k_warps * (Weights::k_own_bytes + Weights::k_headers_bytes) +
                                         3 * 4 * k_inputs + 16 + Weights::k_table_bytes;
    // Columns of inputs between two barriers. Formats of many bits leave room for fewer.
    static constexpr int k_input_cols = [] {
        int cols = static_cast<int>(factor_cols(Size::k_size));
        while (k_other_bytes + 2 * cols * k_inputs * 2 > Size::k_max_bytes) cols /= 2;
        return cols;
    }();
    static_assert(k_input_cols >= 32 && Weights::k_cols % k_input_cols == 0);
    static constexpr int k_input_bytes = k_input_cols * k_inputs * 2;  // of a stage

    static constexpr int k_weights_at = 2 * k_input_bytes;
    static constexpr int k_own_at = k_weights_at + 2 * k_weight_bytes;
    static constexpr int k_headers_at = k_own_at + Size::k_warps * Weights::k_own_bytes;
    static constexpr int k_rows_at = k_headers_at + Size::k_warps * Weights::k_headers_bytes;
    static constexpr int k_quotients_at = k_rows_at + 2 * 4 * k_inputs;
    static constexpr int k_flag_at = k_quotients_at + 4 * k_inputs;
    static constexpr int k_table_at = k_flag_at + 16;
    static constexpr int k_bytes = k_table_at + Weights::k_table_bytes;
    static_assert(k_bytes <= Size::k_max_bytes);

    // The sums of half of the inputs: [input][row], in place of inputs and weights.
    static constexpr int k_sum_stride = 2 * Size::k_warps * static_cast<int>(k_panel_rows) + 4;
    static_assert(k_inputs / 2 * k_sum_stride * 4 <= k_own_at);
};

}  // namespace minim::cuda::fast
