// SPDX-License-Identifier: Apache-2.0
// Computes a router's outputs for many rows: float weights times float inputs, without rounding.
//
// Shape: one block of 128 threads for each tile of 32 inputs and 64 experts, 32 columns at a time through shared
// memory; a thread has 4 x 4 sums. If there are few tiles, several blocks share the columns of one, and the last to
// arrive adds up. Bytes moved: inputs once for 64 experts, weights once for 32 inputs, most of them from the
// second-level cache. Bound: float arithmetic, 16 multiply-adds for 32 bytes of shared memory.
#pragma once

#include <algorithm>

#include "cuda/fast/device.h"
#include "cuda/fast/last_block.h"
#include "cuda/fast/operations.h"

namespace minim::cuda::fast {

// Block::block_elems is 1, and a row has a multiple of k_step columns.
template <class Block>
struct RouterOutputsKernel {
    static constexpr int k_threads = 128;
    static constexpr int k_tile_rows = 32;
    static constexpr int k_tile_experts = 64;
    static constexpr int k_step = 32;
    static constexpr int k_row_stride =
        k_tile_rows + 4;  // of a column in shared memory: floats of 16 bytes' alignment
    static constexpr int k_expert_stride = k_tile_experts + 4;
    static constexpr int k_weights_at = k_step * k_row_stride;  // floats
    static constexpr int k_shared_floats = k_weights_at + k_step * k_expert_stride;
    static constexpr int k_row_elems =
        k_tile_rows * k_step / k_threads;  // that a thread brings of the inputs
    static constexpr int k_expert_elems = k_tile_experts * k_step / k_threads;  // and of the weights

    Weight router;
    const float* h;
    int64_t n;
    int32_t n_parts;   // blocks that share a tile's columns
    float* partial;    // [tiles, n_parts, k_threads, 16], of more than one
    int32_t* arrived;  // [tiles]
    float* score;

    MINIM_HOST_DEVICE int64_t n_expert_tiles() const {
        return (router.rows + k_tile_experts - 1) / k_tile_experts;
    }
    Grid grid() const {
        return {(n + k_tile_rows - 1) / k_tile_rows * n_expert_tiles(), n_parts,
                (k_shared_floats + 1) * int64_t{sizeof(float)}};
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        auto* rows = reinterpret_cast<float*>(t.shared());  // [k_step, k_row_stride]
        float* weights = rows + k_weights_at;               // [k_step, k_expert_stride]
        const int64_t first_row = t.block() / n_expert_tiles() * k_tile_rows;
        const int64_t first_expert = t.block() % n_expert_tiles() * k_tile_experts;
        const int64_t n_steps = router.cols / k_step;
        const int64_t end = n_steps * (t.block_y() + 1) / n_parts;
        float sum[4][4] = {};
        Pieces pieces;
        int64_t step = n_steps * t.block_y() / n_parts;
        load(t, first_row, first_expert, step * k_step, pieces);
        MINIM_DEVICE_LOOP
        for (; step < end; ++step) {
            t.sync();  // no thread reads the previous step any more
            put(t, pieces, rows, weights);
            t.sync();
            if (step + 1 < end) load(t, first_row, first_expert, (step + 1) * k_step, pieces);
            for (int c = 0; c < k_step; ++c) {
                const auto x = *reinterpret_cast<const FourFloats*>(rows + c * k_row_stride + own_row(t));
                const auto w =
                    *reinterpret_cast<const FourFloats*>(weights + c * k_expert_stride + own_expert(t));
                for (int r = 0; r < 4; ++r)
                    for (int e = 0; e < 4; ++e) sum[r][e] = fmaf(x.x[r], w.x[e], sum[r][e]);
            }
        }
        if (n_parts > 1 && !add_parts(t, sum)) return;
        for (int r = 0; r < 4; ++r) {
            const int64_t row = first_row + own_row(t) + r;
            for (int e = 0; e < 4; ++e) {
                const int64_t expert = first_expert + own_expert(t) + e;
                if (row < n && expert < router.rows)
                    score[row * router.rows + expert] = sum[r][e] * router.scale;
            }
        }
    }

  private:
    // A thread's part of a step: neighbouring columns of a row, and of an expert.
    struct Pieces {
        FourFloats row[k_row_elems / 4];
        SixteenBytes expert[k_expert_elems * Block::block_bytes / 16];
    };

    template <class T>
    MINIM_DEVICE static int own_row(T& t) {
        return t.index() / 16 * 4;
    }
    template <class T>
    MINIM_DEVICE static int own_expert(T& t) {
        return t.index() % 16 * 4;
    }

    template <class T>
    MINIM_DEVICE void load(T& t, int64_t first_row, int64_t first_expert, int64_t first_col,
                           Pieces& pieces) const {
        const int64_t row = first_row + t.index() % k_tile_rows;
        const float* from = h + row * router.cols + first_col + t.index() / k_tile_rows * k_row_elems;
        for (int i = 0; i < k_row_elems / 4; ++i) {
            pieces.row[i] = {};
            if (row < n) pieces.row[i] = reinterpret_cast<const FourFloats*>(from)[i];
        }
        const int64_t expert = first_expert + t.index() % k_tile_experts;
        const int64_t col = first_col + t.index() / k_tile_experts * k_expert_elems;
        const uint8_t* weight = router.data + expert * router.row_bytes + col * Block::block_bytes;
        for (int i = 0; i < k_expert_elems * Block::block_bytes / 16; ++i) {
            pieces.expert[i] = {};
            if (expert < router.rows) pieces.expert[i] = reinterpret_cast<const SixteenBytes*>(weight)[i];
        }
    }

    template <class T>
    MINIM_DEVICE static void put(T& t, const Pieces& pieces, float* rows, float* weights) {
        rows += t.index() / k_tile_rows * k_row_elems * k_row_stride + t.index() % k_tile_rows;
        for (int i = 0; i < k_row_elems; ++i) rows[i * k_row_stride] = pieces.row[i / 4].x[i % 4];
        weights += t.index() / k_tile_experts * k_expert_elems * k_expert_stride + t.index() % k_tile_experts;
        constexpr int k_elems = 16 / Block::block_bytes;
        for (int i = 0; i < k_expert_elems; ++i) {
            const auto* bytes = reinterpret_cast<const uint8_t*>(pieces.expert[i / k_elems].word);
            Block::decode_block(bytes + i % k_elems * Block::block_bytes, 1.0F,
                                weights + i * k_expert_stride);
        }
    }

    // Adds up the sums of all parts in the last block. Returns false in the other blocks.
    template <class T>
    MINIM_DEVICE bool add_parts(T& t, float (&sum)[4][4]) const {
        auto* parts = reinterpret_cast<FourFloats*>(partial) + int64_t{t.block()} * n_parts * k_threads * 4;
        const auto own = [&](int part) { return parts + (part * k_threads + t.index()) * 4; };
        for (int r = 0; r < 4; ++r) own(t.block_y())[r] = {{sum[r][0], sum[r][1], sum[r][2], sum[r][3]}};
        auto* is_last = reinterpret_cast<int32_t*>(t.shared()) + k_shared_floats;
        if (!is_last_block(t, arrived + t.block(), n_parts, is_last)) return false;
        for (int r = 0; r < 4; ++r) {
            for (float& each : sum[r]) each = 0.0F;
            for (int part = 0; part < n_parts; ++part) {
                const FourFloats added = own(part)[r];
                for (int e = 0; e < 4; ++e) sum[r][e] += added.x[e];
            }
        }
        return true;
    }
};

// How many blocks share a tile's columns, so that all together keep a large GPU busy.
inline constexpr int64_t k_router_blocks = 128;
inline int32_t router_parts(int64_t n_tiles, int64_t cols) {
    const int64_t most = cols / RouterOutputsKernel<F32>::k_step / 3;  // of three steps or more
    const int64_t parts = std::min(k_router_blocks / n_tiles, most);
    return static_cast<int32_t>(std::max<int64_t>(parts, 1));
}

}  // namespace minim::cuda::fast
