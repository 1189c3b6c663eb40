// SPDX-License-Identifier: Apache-2.0
// The tile kernel (linear_tile.h) of each format. Each family of packed formats is compiled in a file of its own, and so are the formats
// that are not packed.
#pragma once

#include "cuda/fast/operations.h"

namespace minim::cuda::fast {

enum class TileKind : uint8_t { linear, activate, project };

// The arguments of linear_tile(), activate_tile() and project_tile(). What a kind does not have is empty.
struct TileCall {
    TileKind kind;
    HalfInputs input;
    int64_t cols;
    int64_t row_bytes;
    // linear
    Products products = {};
    int64_t n = 0;
    // activate, project
    Experts experts = {};  // gate, or the only ones
    Experts up = {};
    int64_t slots_a_row = 1;  // of the input
    ExpertTiles tiles = {};
    HalfInputs activated = {};
    float* output = nullptr;
};

// What a block computes of it.
struct TileTask {
    const uint8_t* weights;  // of gate and up those of gate
    const uint8_t* up;
    float scale;
    float up_scale;
    int64_t first_row;
    int64_t rows;        // of the matrix
    int count;           // of inputs
    int task;            // of Products
    int32_t first_slot;  // in ExpertTiles::slot
};

using TileKernel = void (*)(Stream stream, const TileCall& call, TileSize size);

// By format; null for formats of other families.
struct TileKernelTable {
    TileKernel by_format[k_format_count];
};

extern const TileKernelTable k_tile_blocks_of_32, k_tile_k_quants, k_tile_value_tables, k_tile_grids,
    k_tile_trellis, k_tile_ternary, k_tile_unpacked;

}  // namespace minim::cuda::fast
