// SPDX-License-Identifier: Apache-2.0
// Attention of a step (fast_step.h): which of its kernels, and how many blocks share a context.
#include <iterator>

#include "cuda/debug.h"
#include "cuda/fast_step.h"
#include "cuda/postponed_norm.h"

namespace minim::cuda::fast {
namespace {

// Returns whether one kernel prepares and attends. Its blocks read all of q and k while others write o already.
bool attends_in_one(const cuda::Stream& s, const PrepareArgs& args, const float* o) {
    if (!debug_switches().fold || s.fixed || args.n != 1 || !attend_row_runs(args)) return false;
    const int64_t q_size = args.cache.n_head * args.cache.head_dim;
    const int64_t kv_size = args.cache.n_head_kv * args.cache.head_dim;
    return !overlap(o, q_size, args.q, q_size) && !overlap(o, q_size, args.k, kv_size) &&
           !overlap(o, q_size, args.v, kv_size);
}

}  // namespace

void attend_rows(cuda::Stream& s, const exact::Cache& cache, const backend::AttendArgs& args) {
    const PrepareArgs prepared = {.cache = cache,
                                  .n = args.n,
                                  .q = args.q,
                                  .k = args.k,
                                  .v = args.v,
                                  .q_norm = args.q_norm.data,
                                  .k_norm = args.k_norm.data,
                                  .norm_eps = args.norm_eps,
                                  .frequency = s.frequency,
                                  .n_frequency = std::ssize(args.rope_frequency),
                                  .hadamard = args.rows[0].sequence->layout->rotates_keys(),
                                  .query = s.query};
    const auto splits = [&](TileShape shape, int64_t n_tiles) {
        return attend_splits(shape, n_tiles, args.n_head_kv, s.n_context, s.n_processors);
    };
    const TileCounts& n = s.n_attend_tiles;
    const int64_t narrow_splits = splits(TileShape::narrow, n.n_narrow);
    if (attends_in_one(s, prepared, args.o)) {
        const int64_t first_pages =
            narrow_splits * (cache.k_head_bytes + cache.v_head_bytes) * args.n_head_kv;
        attend_row(s.stream, {.prepare = prepared,
                              .n_splits = narrow_splits,
                              .partial = s.partial,
                              .arrived = s.arrived,
                              .o = args.o,
                              .quantized = s.input,
                              .prefetches = is_prefetched(first_pages)});
        s.quantized = {args.o, 1, args.n_head * args.head_dim};
        return;
    }
    prepare(s.stream, prepared);
    const int32_t* tiles = s.batch_tables.attend_tiles;
    TileList wide = {tiles, n.n_wide, splits(TileShape::wide, n.n_wide)};
    if (s.fixed) wide = {tiles, n.n_wide, k_fixed_parts, k_fixed_tiles};
    const TileList narrow = {tiles + 2 * n.n_wide, n.n_narrow, narrow_splits};
    attend(s.stream, {.cache = cache,
                      .query = s.query,
                      .wide = wide,
                      .narrow = narrow,
                      .partial = s.partial,
                      .o = args.o,
                      .quantized = s.input});
    const auto is_quantized = [](const TileList& list) { return list.n_tiles == 0 || list.n_splits > 1; };
    if (is_quantized(wide) && is_quantized(narrow))
        s.quantized = {args.o, args.n, args.n_head * args.head_dim};
}

}  // namespace minim::cuda::fast
