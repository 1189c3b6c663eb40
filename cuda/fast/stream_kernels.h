// SPDX-License-Identifier: Apache-2.0
// The stream kernels (stream_products.h, stream_tiles.h) of each format. Each family of formats is compiled in a file of its own.
#pragma once

#include "cuda/fast/operations.h"

namespace minim::cuda::fast {

// A device that runs the stream kernels.
struct StreamDevice {
    int32_t n_processors = 0;  // 0: it has no bulk copies, or the path is off
    int32_t shared_bytes = 0;  // that a block can have
};

// The last two are of slots in tiles.
enum class StreamKind : uint8_t { rows, activate, project, activate_tiles, project_tiles };

// Rows of input: blocks, or floats that every block of threads quantises for itself.
struct StreamRows {
    const Q8Block* blocks = nullptr;  // [n, cols / 32]
    const float* x = nullptr;         // [n, cols], aligned to 16 bytes; results must not overlap it
    Q8Block* quantized = nullptr;     // gets the blocks of x, for later kernels
};

// The arguments of a launch. What a kind does not have is empty.
struct StreamCall {
    StreamKind kind;
    int64_t cols;
    int64_t row_bytes;
    StreamRows input =
        {};  // of n_inputs rows; nothing: one row, normalised by each block; slots in tiles have blocks
    int32_t n_inputs = 1;
    // rows
    Products products = {};
    NormRow norm = {};
    // the others
    Experts experts = {};  // gate, or down
    Experts up = {};
    int32_t slots_an_input = 1;  // that have the same input
    Q8Block* activated = nullptr;
    float* output = nullptr;
    // activate, project
    const int32_t* ids = nullptr;  // null: the entries of the experts are those of the slots
    int32_t n_slots = 0;
    int32_t n_used = 1;  // slots of a row
    SlotSums sums = {};
    // activate_tiles, project_tiles
    ExpertTiles tiles = {};
};

// Launches the kernel that multiplies one, two or up to four rows, and returns true; returns false if the device cannot run it.
using StreamKernel = bool (*)(Stream stream, const StreamCall& call, const StreamDevice& device);

// By format; null for formats that have no panels.
struct StreamKernelTable {
    StreamKernel by_format[k_format_count];
};

extern const StreamKernelTable k_stream_blocks_of_32, k_stream_k_quants, k_stream_value_tables,
    k_stream_grids, k_stream_trellis, k_stream_ternary;

}  // namespace minim::cuda::fast
