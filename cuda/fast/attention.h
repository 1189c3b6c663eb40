// SPDX-License-Identifier: Apache-2.0
// Attention in F16 with sums in float: its preparation (norms, positions, the store into the KV cache), and how a
// batch is cut into tiles. The kernels are in attend_prepare.h, attend.h and attend_combine.h.
//
// A batch is cut into tiles: rows of one sequence at consecutive positions. A block of threads takes a tile and a KV
// head, so that K and V are read once for all of the tile's tokens and all query heads of the KV
// head. There are two shapes: wide ones for prompts, and narrow ones for single tokens and short drafts, which many
// blocks share between them, each with its part of the context. Pages of the context go to the blocks in turn. So
// the order in which a row's keys are summed depends only on its position and the number of parts: a row's bits do not
// change with the rows beside it as long as it lies in a tile of the same shape.
//
// If a row's bits must not depend on the batch, all tiles are wide, and their context has k_fixed_parts parts: enough to
// keep a large GPU busy with one token of the model's eight KV heads.
//
// Pointers lie in the device's memory unless stated, 16-byte aligned; so are the cache's pages.
#pragma once

#include <cstdint>
#include <span>

#include "backend/kv_view.h"
#include "cuda/exact/operations.h"
#include "cuda/fast/q8_block.h"

namespace minim::cuda::fast {

using exact::Cache;

// Rows of a tile: (token, query head of the group), 16 to a warp.
inline constexpr int k_wide_rows = 128;
inline constexpr int k_narrow_rows = 16;

inline constexpr int64_t k_fixed_parts = 16;
// The number of wide tiles that are then computed at a time. Their parts take memory: 8.5 MB for each tile of the
// model.
inline constexpr int64_t k_fixed_tiles = 8;

// Returns whether there are kernels for these heads: 32, 64, 96 or 128 elements, up to 16 query heads to a KV head.
bool attend_runs(int64_t head_dim, int64_t n_head, int64_t n_head_kv);

struct PrepareArgs {
    Cache cache;
    int64_t n;
    const float* q;  // [n, n_head * head_dim]
    const float* k;  // [n, n_head_kv * head_dim]
    const float* v;
    const float* q_norm;  // [n_head * head_dim], or with norms_heads [head_dim]
    const float* k_norm;  // [n_head_kv * head_dim] or [head_dim]
    float norm_eps;
    bool
        norms_heads;  // a mean square for each head, where otherwise all heads of a row have one; without `squares`
    // If ranks divide the heads: the sums of head_squares() over all ranks, [n, 2], and the numbers of q and of k that they
    // are sums of. Null: all heads are here.
    const float* squares;
    int64_t n_squares_q;
    int64_t n_squares_k;
    const float* frequency;
    int64_t n_frequency;  // at most head_dim / 2
    bool hadamard;        // applies backend/hadamard.h to queries and keys; head_dim is a power of two
    uint16_t* query;  // [n, n_head * head_dim], F16: q normalised, rotated, and times query_scale(head_dim)
};
// Norms and rotates q and k, and stores k and v at their rows' positions.
void prepare(exact::Stream stream, const PrepareArgs& args);

// The rows whose squares are summed: their numbers are multiples of 4.
struct SquaresArgs {
    int64_t n;
    const float* q;  // [n, q_size]
    int64_t q_size;
    const float* k;  // [n, k_size]
    int64_t k_size;
    float* squares;  // [n, 2]
};
// squares = the sums of squares of each row of q and of k, with the bits of the sums in prepare().
void head_squares(exact::Stream stream, const SquaresArgs& args);

// Returns log2(e) / sqrt(head_dim): scores of queries with this factor are exponents of 2.
float query_scale(int64_t head_dim);

struct TileCounts {
    int64_t n_wide = 0;
    int64_t n_narrow = 0;
    bool operator==(const TileCounts&) const = default;
};
// Cuts a batch. tiles: host memory, two numbers for each row of the batch; gets (first row, rows) of the wide tiles,
// then of the narrow ones. The rest becomes tiles of no rows, whose blocks in attend() end at once: a recorded graph
// of launches always has one tile for each row, and works for every batch. `fixed`: all are wide.
TileCounts make_tiles(std::span<const backend::KvRow> rows, int64_t n_head, int64_t n_head_kv,
                      std::span<int32_t> tiles, bool fixed = false);

enum class TileShape { wide, narrow };
// Returns the number of blocks that share the context of a tile if n_tiles of one shape are launched together, for rows
// that attend to up to n_context positions: enough to keep the device's n_processors busy. 1 for no tiles.
int64_t attend_splits(TileShape shape, int64_t n_tiles, int64_t n_head_kv, int64_t n_context,
                      int64_t n_processors);

// Returns the most bytes of AttendArgs::partial, for batches of up to n_rows rows and splits from attend_splits.
int64_t partial_bytes(int64_t n_rows, int64_t n_head, int64_t n_head_kv, int64_t head_dim,
                      int64_t n_processors);
// Returns the same for k_fixed_tiles tiles of k_fixed_parts parts.
int64_t fixed_partial_bytes(int64_t n_rows, int64_t n_head_kv, int64_t head_dim);

// The tables of a batch whose rows attend to chosen blocks (backend/sparse_attention.h). A row has, for each KV head, the pages of its
// blocks one after the other, as if they were its whole context. Its own block is the last one, so a position in these pages says, as
// ever, which keys it sees: with blocks of 2 pages and the blocks 0, 3 and 5 chosen, position 700 is the page list 0 1 6 7 10 11 and
// the position 2 * 128 + 700 % 128 there.
struct ChosenPages {
    int32_t* tiles = nullptr;       // [n, 2]: each row is a tile
    int32_t* position = nullptr;    // [n]
    int64_t* first_page = nullptr;  // [n]
    uint64_t* pages = nullptr;      // [n, n_head_kv, pages_a_head]
    int64_t pages_a_head = 0;       // 0: there are none
};
// Returns the pages of a head whose rows attend to chosen blocks; 0 if the blocks are not whole pages.
int64_t chosen_pages_a_head(const backend::SparseAttention& shape);
struct ChoosePagesArgs {
    Cache cache;
    exact::Index index;     // `chosen` is not set
    exact::IndexRows rows;  // of the batch
    int64_t n;
    int64_t n_context;  // no less than the longest context of the rows
    ChosenPages to;
};
// Normalises, rotates and stores n rows of an index, chooses their blocks and fills the tables. Rows that see no more blocks than they
// may choose keep all their pages.
void choose_pages(exact::Stream stream, const ChoosePagesArgs& args);

struct TileList {
    const int32_t* tiles;  // [n_tiles, 2]: first row, number of rows
    int64_t n_tiles;
    int64_t n_splits;
    int64_t n_together = INT64_MAX;  // most tiles of a launch: `partial` has room for their parts
};
struct AttendArgs {
    Cache cache;
    const uint16_t* query;  // prepare()'s
    TileList wide;
    TileList narrow;
    float* partial;      // work space; not read where n_splits is 1
    float* o;            // [n, n_head * head_dim]
    Q8Block* quantized;  // [n, n_head * head_dim / 32], of tiles whose n_splits is above 1: o, quantised
    bool is_one_row;     // the batch has one row: steps that have ended have written all pages but its newest
    // The number of pages from a KV head of a row to the next, if a kernel before this one writes the cache's tables and the tiles.
    // 0: the tables were copied before the step, and all heads have the same pages.
    int64_t pages_a_head = 0;
};
void attend(exact::Stream stream, const AttendArgs& args);

}  // namespace minim::cuda::fast
