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

// The scales and minima of a row's unit, as pairs of equal halves: scales of the groups, then minima.
template <class Kind>
inline constexpr int k_tile_numbers = Kind::k_groups*(Kind::k_minima ? 2 : 1);
template <int n>
struct alignas(4 * n) TileNumbers {
    uint32_t both[n];
};

// Where things lie in shared memory.
template <class P, class Size>
struct TileMemory {
    using Block = typename P::Block;
    static constexpr int k_inputs = tile_inputs(Size::k_size);
    static constexpr int k_panel_bytes = k_stage_panel_bytes<Block>;
    // The second panel of a warp: words of one and of the other are never in the same banks.
    static constexpr int k_second_at = k_panel_bytes + (192 - k_panel_bytes % 128) % 128;
    static constexpr int k_pair_bytes = k_second_at + k_panel_bytes;
    static constexpr int k_weight_bytes = Size::k_warps * k_pair_bytes;  // of a stage
    static constexpr int k_header_bytes = Block::row_header_bytes * static_cast<int>(k_panel_rows);
    static_assert(k_header_bytes <= 64);
    static constexpr int k_row_stride = 48;
    static constexpr int k_numbers_at = 32;  // in a row, behind its codes
    static constexpr int k_own_bytes = 32 * k_row_stride;

    static constexpr int k_other_bytes = 2 * k_weight_bytes + Size::k_warps * (k_own_bytes + 2 * 64) +
                                         3 * 4 * k_inputs + 16 + k_table_bytes<P>;
    // Columns of inputs between two barriers. Formats of many bits leave room for fewer.
    static constexpr int k_input_cols = [] {
        int cols = static_cast<int>(factor_cols(Size::k_size));
        while (k_other_bytes + 2 * cols * k_inputs * 2 > Size::k_max_bytes) cols /= 2;
        return cols;
    }();
    static_assert(k_input_cols >= 32);
    static constexpr int k_input_bytes = k_input_cols * k_inputs * 2;  // of a stage

    static constexpr int k_weights_at = 2 * k_input_bytes;
    static constexpr int k_own_at = k_weights_at + 2 * k_weight_bytes;
    static constexpr int k_headers_at = k_own_at + Size::k_warps * k_own_bytes;
    static constexpr int k_rows_at = k_headers_at + Size::k_warps * 2 * 64;
    static constexpr int k_quotients_at = k_rows_at + 2 * 4 * k_inputs;
    static constexpr int k_flag_at = k_quotients_at + 4 * k_inputs;
    static constexpr int k_table_at = k_flag_at + 16;
    static constexpr int k_bytes = k_table_at + k_table_bytes<P>;
    static_assert(k_bytes <= Size::k_max_bytes);

    // The sums of half of the inputs: [input][row], in place of inputs and weights.
    static constexpr int k_sum_stride = 2 * Size::k_warps * static_cast<int>(k_panel_rows) + 4;
    static_assert(k_inputs / 2 * k_sum_stride * 4 <= k_own_at);
};

}  // namespace minim::cuda::fast
