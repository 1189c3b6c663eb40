// SPDX-License-Identifier: Apache-2.0
// The functions of attention.h, over launch(stream, grid, kernel), which the including file defines.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>

#include "cuda/fast/attend.h"
#include "cuda/fast/attend_combine.h"
#include "cuda/fast/attend_prepare.h"
#include "cuda/fast/attention.h"
#include "cuda/fast/block_index.h"

namespace minim::cuda::fast {
namespace {

// Blocks of a launch that keep a multiprocessor busy: three blocks of narrow tiles fit on one.
constexpr int64_t k_wide_blocks = 2;
constexpr int64_t k_narrow_blocks = 3;
// Pages of the longest context that a block of a narrow tile takes, if the launch then has at most k_max_narrow_blocks blocks
// a multiprocessor: beside many short contexts, a long one would else be left to a few blocks.
constexpr int64_t k_block_pages = 64;
constexpr int64_t k_max_narrow_blocks = 8;
constexpr int64_t k_max_splits = 128;
// Blocks that prepare the queries of a batch with few rows.
constexpr int64_t k_prepare_blocks = 64;
// Up to this number of rows, a warp scores a block of keys for one row. Tiles of rows would leave too few warps to keep a device busy.
constexpr int64_t k_few_scored_rows = 16;

// Calls back with head_dim as a type; false if there are no kernels for it.
template <class Call>
bool with_head_dim(int64_t head_dim, const Call& call) {
    switch (head_dim) {
        case 32:
            call(std::integral_constant<int, 32>{});
            return true;
        case 64:
            call(std::integral_constant<int, 64>{});
            return true;
        case 96:
            call(std::integral_constant<int, 96>{});
            return true;
        case 128:
            call(std::integral_constant<int, 128>{});
            return true;
        default:
            return false;
    }
}

// Returns the number of rows, from row `first` on, of one sequence at consecutive positions.
int64_t run_length(std::span<const backend::KvRow> rows, size_t first) {
    size_t end = first + 1;
    while (end < rows.size() && rows[end].sequence == rows[first].sequence &&
           rows[end].position == rows[end - 1].position + 1)
        ++end;
    return static_cast<int64_t>(end - first);
}

template <class Kernel>
void launch_grid(exact::Stream stream, const Kernel& kernel) {
    launch(stream, kernel.grid(), kernel);
}

// Computes the tiles of the list in one launch.
template <class Kernel>
void attend_together(exact::Stream stream, const AttendArgs& args, const TileList& list) {
    const Cache& cache = args.cache;
    const int64_t n_slots = list.n_tiles * cache.n_head_kv * list.n_splits;
    const Partial partial = {args.partial, args.partial + n_slots * Kernel::k_rows * cache.head_dim};
    const auto n_tiles = static_cast<int32_t>(list.n_tiles);
    const auto n_splits = static_cast<int32_t>(list.n_splits);
    const auto group = static_cast<int32_t>(cache.n_head / cache.n_head_kv);
    const Kernel kernel = {cache, args.query,      list.tiles,        n_tiles, n_splits,
                           group, args.is_one_row, args.pages_a_head, partial, args.o};
    launch_grid(stream, kernel);
    if (n_splits == 1) return;
    const CombineKernel combine = {list.tiles,
                                   cache.position,
                                   args.pages_a_head != 0,
                                   n_tiles,
                                   n_splits,
                                   Kernel::k_rows,
                                   static_cast<int32_t>(cache.n_head),
                                   static_cast<int32_t>(cache.n_head_kv),
                                   static_cast<int32_t>(cache.head_dim),
                                   partial,
                                   args.o,
                                   args.quantized};
    launch_grid(stream, combine);
}

template <class Kernel>
void attend_tiles(exact::Stream stream, const AttendArgs& args, const TileList& list) {
    for (int64_t first = 0; first < list.n_tiles; first += std::min(list.n_together, list.n_tiles)) {
        TileList some = list;
        some.tiles += 2 * first;
        some.n_tiles = std::min(list.n_together, list.n_tiles - first);
        attend_together<Kernel>(stream, args, some);
    }
}

}  // namespace

bool attend_runs(int64_t head_dim, int64_t n_head, int64_t n_head_kv) {
    return with_head_dim(head_dim, [](auto) {}) && n_head_kv > 0 && n_head % n_head_kv == 0 &&
           n_head / n_head_kv >= 1 && n_head / n_head_kv <= k_narrow_rows;
}

float query_scale(int64_t head_dim) {
    return static_cast<float>(std::numbers::log2e / std::sqrt(static_cast<double>(head_dim)));
}

TileCounts make_tiles(std::span<const backend::KvRow> rows, int64_t n_head, int64_t n_head_kv,
                      std::span<int32_t> tiles, bool fixed) {
    const int64_t group = n_head / n_head_kv;
    const int64_t wide_tokens = k_wide_rows / group;
    const int64_t narrow_tokens = k_narrow_rows / group;
    TileCounts counts;
    size_t next = 0;
    // A run that is cut is cut evenly.
    const auto cut = [&](size_t first, int64_t length, int64_t most) {
        const int64_t n_tiles = (length + most - 1) / most;
        for (int64_t i = 0; i < n_tiles; ++i) {
            const int64_t begin = length * i / n_tiles;
            tiles[next++] = static_cast<int32_t>(static_cast<int64_t>(first) + begin);
            tiles[next++] = static_cast<int32_t>(length * (i + 1) / n_tiles - begin);
        }
        return n_tiles;
    };
    for (const bool wide : {true, false}) {
        for (size_t first = 0; first < rows.size();) {
            const int64_t length = run_length(rows, first);
            // Two narrow tiles read the context twice, the second time from the cache, and still end sooner than a wide
            // one.
            const bool is_wide = fixed || length > 2 * narrow_tokens;
            if (is_wide && wide) counts.n_wide += cut(first, length, wide_tokens);
            if (!is_wide && !wide) counts.n_narrow += cut(first, length, narrow_tokens);
            first += static_cast<size_t>(length);
        }
    }
    std::fill(tiles.begin() + static_cast<std::ptrdiff_t>(next), tiles.end(), 0);
    return counts;
}

int64_t attend_splits(TileShape shape, int64_t n_tiles, int64_t n_head_kv, int64_t n_context,
                      int64_t n_processors) {
    const int64_t n_pages = (n_context + k_page_tokens - 1) / k_page_tokens;
    const int64_t most = std::min(k_max_splits, n_pages);
    if (n_tiles == 0 || most < 2) return 1;
    const int64_t n_blocks = n_tiles * n_head_kv;  // for each part
    if (shape == TileShape::wide)
        return std::clamp<int64_t>(k_wide_blocks * n_processors / n_blocks, 1, most);
    const int64_t busy = k_narrow_blocks * n_processors / n_blocks;
    const int64_t of_pages = std::min((n_pages + k_block_pages - 1) / k_block_pages,
                                      k_max_narrow_blocks * n_processors / n_blocks);
    return std::clamp<int64_t>(std::max(busy, of_pages), 1, most);
}

int64_t partial_bytes(int64_t n_rows, int64_t n_head, int64_t n_head_kv, int64_t head_dim,
                      int64_t n_processors) {
    // The most rows of any launch with more than one split.
    const int64_t narrow_tokens = k_narrow_rows / (n_head / n_head_kv);
    const int64_t wide = n_rows > 2 * narrow_tokens ? k_wide_blocks * k_wide_rows : 0;
    return n_processors * std::max(wide, k_max_narrow_blocks * k_narrow_rows) * (head_dim + 2) *
           static_cast<int64_t>(sizeof(float));
}

int64_t fixed_partial_bytes(int64_t n_rows, int64_t n_head_kv, int64_t head_dim) {
    return std::min(n_rows, k_fixed_tiles) * n_head_kv * k_fixed_parts * k_wide_rows * (head_dim + 2) *
           static_cast<int64_t>(sizeof(float));
}

void head_squares(exact::Stream stream, const SquaresArgs& args) {
    if (args.n > 0) launch_grid(stream, SquaresKernel{args});
}

void prepare(exact::Stream stream, const PrepareArgs& args) {
    if (args.n == 0) return;
    const int64_t q_parts = std::clamp<int64_t>(k_prepare_blocks / args.n, 1, 8);
    with_head_dim(args.cache.head_dim, [&](auto head_dim) {
        const PrepareKernel<head_dim> kernel = {args, query_scale(head_dim), static_cast<int32_t>(q_parts)};
        launch_grid(stream, kernel);
    });
}

int64_t chosen_pages_a_head(const backend::SparseAttention& shape) {
    return shape.n_head > 0 && shape.block % k_page_tokens == 0 ? shape.top * (shape.block / k_page_tokens)
                                                                : 0;
}

void choose_pages(exact::Stream stream, const ChoosePagesArgs& args) {
    const auto& [cache, index, rows, n, n_context, to] = args;
    const bool prepared = with_head_dim(index.shape.dim, [&](auto dim) {
        launch_grid(stream, PrepareIndexKernel<dim>{cache, index, rows, n});
    });
    if (!prepared) exact::prepare_index(stream, cache, index, rows, n);
    const bool is_half = index.format == Format::f16 || index.format == Format::bf16;
    if (!prepared || !is_half || index.shape.n_head > k_mma_rows) {
        exact::score_blocks(stream, cache, index, rows.q, n);
    } else {
        const int64_t n_blocks =
            std::min(index.n_blocks, (n_context + index.shape.block - 1) / index.shape.block);
        const bool few = n <= k_few_scored_rows;
        const auto rows_a_tile = static_cast<int32_t>(few ? 1 : k_mma_rows / index.shape.n_head);
        with_head_dim(index.shape.dim, [&](auto dim) {
            const auto score = [&](auto format) {
                launch_grid(stream, ScoreBlocksKernel<dim, format>{cache, index, rows.q, n, n_blocks,
                                                                   rows_a_tile, few ? 1 : k_score_warps});
            };
            if (index.format == Format::f16) {
                score(std::integral_constant<Format, Format::f16>{});
            } else {
                score(std::integral_constant<Format, Format::bf16>{});
            }
        });
    }
    launch_grid(stream, ChoosePagesKernel{cache, index, to, n});
}

void attend(exact::Stream stream, const AttendArgs& args) {
    with_head_dim(args.cache.head_dim, [&](auto head_dim) {
        attend_tiles<AttendKernel<head_dim, k_wide_rows / 16, 1>>(stream, args, args.wide);
        attend_tiles<AttendKernel<head_dim, 1, 4>>(stream, args, args.narrow);
    });
}

}  // namespace minim::cuda::fast
