// SPDX-License-Identifier: Apache-2.0
// Attention of a step (fast_step.h): which of its kernels, and how many blocks share a context.
#include <iterator>

#include "cuda/fast_step.h"

namespace minim::cuda::fast {

void attend_rows(cuda::Stream& s, const exact::Cache& cache, const backend::AttendArgs& args) {
    prepare(s.stream, {.cache = cache,
                       .n = args.n,
                       .q = args.q,
                       .k = args.k,
                       .v = args.v,
                       .q_norm = args.q_norm.data,
                       .k_norm = args.k_norm.data,
                       .norm_eps = args.norm_eps,
                       .frequency = s.work.frequency,
                       .n_frequency = std::ssize(args.rope_frequency),
                       .hadamard = args.rows[0].sequence->layout->rotates_keys(),
                       .query = s.fast_work.query});
    const auto splits = [&](TileShape shape, int64_t n_tiles) {
        return attend_splits(shape, n_tiles, args.n_head_kv, s.batch.n_context, s.n_processors);
    };
    const TileCounts& n = s.batch.n_tiles;
    const int32_t* tiles = s.batch.tables.attend_tiles;
    TileList wide = {tiles, n.n_wide, splits(TileShape::wide, n.n_wide)};
    if (s.fixed) wide = {tiles, n.n_wide, k_fixed_parts, k_fixed_tiles};
    const TileList narrow = {tiles + 2 * n.n_wide, n.n_narrow, splits(TileShape::narrow, n.n_narrow)};
    // Other batches have ended (CudaDevice::put_batch), so that only this one's row may still be written.
    attend(s.stream, {.cache = cache,
                      .query = s.fast_work.query,
                      .wide = wide,
                      .narrow = narrow,
                      .partial = s.fast_work.partial,
                      .o = args.o,
                      .quantized = s.fast_work.input,
                      .is_one_row = args.n == 1});
    const auto is_quantized = [](const TileList& list) { return list.n_tiles == 0 || list.n_splits > 1; };
    if (is_quantized(wide) && is_quantized(narrow))
        s.quantized = {args.o, args.n, args.n_head * args.head_dim};
}

}  // namespace minim::cuda::fast
