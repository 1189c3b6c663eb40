// SPDX-License-Identifier: Apache-2.0
// Joins the results of blocks that shared a tile's context (attend.h): o = sum of weight * o / sum of weight *
// divisor. The weight of a part is 2 to the power of its largest score minus the largest of all. It also quantises o
// for the product that follows.
//
// Shape: one block of threads for each row of a tile and KV head. A warp takes every eighth part, four elements in each lane, and
// has the loads of eight parts under way at once; then a thread for each element joins the warps' results. So the order of the
// parts depends only on their number. Bytes moved: 4 for each number of each part, 5.5 for each of o. Bound: the latency of the
// second-level cache that still holds the parts, once for up to 64 of them.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/fast/attend.h"
#include "cuda/fast/quantize.h"

namespace minim::cuda::fast {

struct CombineKernel {
    static constexpr int k_warps = 8;
    static constexpr int k_threads = 32 * k_warps;
    static constexpr bool k_starts_early = true;
    static constexpr int k_together = 8;  // parts of a warp whose loads are under way at once

    const int32_t* tiles;
    const int32_t* position;
    bool tables_are_inputs;  // an earlier kernel of the step writes them
    int32_t n_tiles;
    int32_t n_splits;
    int32_t tile_rows;
    int32_t n_head;
    int32_t n_head_kv;
    int32_t head_dim;
    Partial partial;
    float* o;
    Q8Block* quantized;  // may be null

    // Shared memory has the states of the warps' results, and the results.
    Grid grid() const {
        return {int64_t{n_tiles} * n_head_kv, tile_rows,
                k_warps * (static_cast<int64_t>(sizeof(PartState)) + 4 * int64_t{head_dim})};
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        // Tables that were copied before the step, if not by a kernel.
        if (tables_are_inputs) t.wait_for_inputs();
        const int tile = t.block() / n_head_kv;
        const int group = n_head / n_head_kv;
        const int r = t.block_y();
        const int row = t.load_fresh(tiles + 2 * tile) + r / group;
        const bool has_row = r < t.load_fresh(tiles + 2 * tile + 1) * group;
        const int n_pages = has_row ? t.load_fresh(position + row) / k_page_tokens + 1 : 0;
        t.wait_for_inputs();
        if (!has_row) return;
        // Parts that have a page which this row sees; the others may have been left unwritten.
        const int n_parts = n_pages < n_splits ? n_pages : n_splits;
        auto* states = reinterpret_cast<PartState*>(t.shared());  // [k_warps]
        auto* values =
            reinterpret_cast<float*>(t.shared() + k_warps * sizeof(PartState));  // [k_warps, head_dim]
        join_parts(t, int64_t{t.block()} * n_splits * tile_rows + r, n_parts, states, values);
        t.sync();
        const int i = t.index();
        if (i >= head_dim) return;
        PartState state[k_warps];  // the weight of a warp without a part is 0
        for (int w = 0; w < k_warps; ++w) state[w] = states[w];
        float weight[k_warps];
        const float sum = weigh_parts(t, state, weight).sum;
        float value = 0.0F;
        for (int w = 0; w < k_warps; ++w) value += weight[w] * values[w * head_dim + i];
        const int64_t head = int64_t{row} * n_head + t.block() % n_head_kv * group + r % group;
        const float joined = value / sum;
        o[head * head_dim + i] = joined;
        // Whole warps get here, as head_dim is a multiple of 32.
        if (quantized != nullptr) quantize_lanes(t, joined, quantized + (head * head_dim + i) / 32);
    }

  private:
    // Joins the parts of a warp: the first one is slot `first`, the others follow at every tile_rows slots.
    template <class T>
    MINIM_DEVICE void join_parts(T& t, int64_t first, int n_parts, PartState* states, float* values) const {
        const int warp = t.index() / 32;
        const int element = t.index() % 32 * 4;
        const bool has_elements = element < head_dim;
        const auto* part_states = reinterpret_cast<const PartState*>(partial.state) + first;
        const float* part_values = partial.o + first * head_dim + element;
        PartState joined = {-INFINITY, 0.0F};
        FourFloats value = {};
        MINIM_DEVICE_LOOP
        for (int part = warp; part < n_parts; part += k_warps * k_together) {
            PartState state[1 + k_together];  // the first is what has been joined
            FourFloats own[1 + k_together];
            state[0] = joined;
            own[0] = value;
            for (int k = 1; k <= k_together; ++k) {
                const int from = part + (k - 1) * k_warps;
                state[k] = {-INFINITY, 0.0F};
                own[k] = {};
                if (from < n_parts) state[k] = part_states[int64_t{from} * tile_rows];
                if (from < n_parts && has_elements)
                    own[k] = *reinterpret_cast<const FourFloats*>(part_values +
                                                                  int64_t{from} * tile_rows * head_dim);
            }
            float weight[1 + k_together];
            joined = weigh_parts(t, state, weight);
            value = {};
            for (int k = 0; k <= k_together; ++k)
                for (int i = 0; i < 4; ++i) value.x[i] += weight[k] * own[k].x[i];
        }
        if (has_elements) *reinterpret_cast<FourFloats*>(values + warp * head_dim + element) = value;
        if (element == 0) states[warp] = joined;
    }
};

}  // namespace minim::cuda::fast
