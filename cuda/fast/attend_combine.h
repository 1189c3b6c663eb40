// SPDX-License-Identifier: Apache-2.0
// Joins the results of blocks that shared a tile's context (attend.h): o = sum of weight * o / sum of weight *
// divisor. The weight of a part is 2 to the power of its largest score minus the largest of all. It also quantises o
// for the product that follows.
//
// Shape: one block of threads for each row of a tile and KV head, one thread for each element. Bytes moved: 4 for each
// number of each part, 5.5 for each of o. Bound: the latency of the second-level cache that still holds the parts,
// which are asked for eight at a time.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/fast/attend.h"
#include "cuda/fast/quantize.h"

namespace minim::cuda::fast {

struct CombineKernel {
    static constexpr int k_threads = 128;  // of which head_dim have work
    static constexpr bool k_starts_early = true;
    static constexpr int k_together = 8;  // parts whose loads are under way at once

    const int32_t* tiles;
    const int32_t* position;
    int32_t n_tiles;
    int32_t n_splits;
    int32_t tile_rows;
    int32_t n_head;
    int32_t n_head_kv;
    int32_t head_dim;
    Partial partial;
    float* o;
    Q8Block* quantized;  // may be null

    Grid grid() const { return {int64_t{n_tiles} * n_head_kv, tile_rows}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        // Tables that were copied before the step.
        const int tile = t.block() / n_head_kv;
        const int group = n_head / n_head_kv;
        const int r = t.block_y();
        const int row = t.load_fresh(tiles + 2 * tile) + r / group;
        const bool has_row = r < t.load_fresh(tiles + 2 * tile + 1) * group;
        const int n_pages = has_row ? t.load_fresh(position + row) / k_page_tokens + 1 : 0;
        t.wait_for_inputs();
        if (!has_row || t.index() >= head_dim) return;
        // Parts that have a page which this row sees; the others may have been left unwritten.
        const int n_parts = n_pages < n_splits ? n_pages : n_splits;
        const int64_t first = int64_t{t.block()} * n_splits * tile_rows + r;
        const auto* states = reinterpret_cast<const PartState*>(partial.state) + first;
        const float* values = partial.o + first * head_dim + t.index();

        float largest = -INFINITY;
        float value = 0.0F;
        float sum = 0.0F;
        MINIM_DEVICE_LOOP
        for (int part = 0; part < n_parts; part += k_together) {
            PartState state[k_together];
            float own[k_together];
            for (int k = 0; k < k_together; ++k) {
                const int64_t at = int64_t{part + k < n_parts ? part + k : n_parts - 1} * tile_rows;
                state[k] = states[at];
                own[k] = values[at * head_dim];
            }
            const float before = largest;
            for (const PartState& one : state) largest = std::fmax(largest, one.largest);
            const float shrunk = t.exp2(before - largest);
            value *= shrunk;
            sum *= shrunk;
            for (int k = 0; k < k_together; ++k) {
                const float weight = part + k < n_parts ? t.exp2(state[k].largest - largest) : 0.0F;
                value += weight * own[k];
                sum += weight * state[k].sum;
            }
        }
        const int64_t head = int64_t{row} * n_head + t.block() % n_head_kv * group + r % group;
        const float joined = value / sum;
        o[head * head_dim + t.index()] = joined;
        // Whole warps get here, as head_dim is a multiple of 32.
        if (quantized != nullptr) quantize_lanes(t, joined, quantized + (head * head_dim + t.index()) / 32);
    }
};

}  // namespace minim::cuda::fast
