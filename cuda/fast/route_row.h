// SPDX-License-Identifier: Apache-2.0
// The router and its choice for one row, with the norm before it.
//
// Shape: a block takes two experts, four warps each; the last block to arrive has all outputs and chooses, with one warp.
// Layout: the block's rows of the router are copied to shared memory, because they do not depend on earlier work in the
// stream: when the row of inputs is there, no load from global memory is left but that row's. Bytes moved: the router once,
// the row and the norm's weights once for each block. Bound: latency, of the row, of the blocks' arrival, and of two exchanges
// for each choice.
#pragma once

#include "cuda/fast/device.h"
#include "cuda/fast/exchange.h"
#include "cuda/fast/last_block.h"
#include "cuda/fast/linear_float.h"
#include "cuda/fast/norm_row.h"
#include "cuda/fast/operations.h"
#include "cuda/fast/route.h"

namespace minim::cuda::fast {

// `posts`: the row and the choices also go to the host (exchange.h), the row before the choices are known.
template <class Block, bool posts = false>
struct RouteRowKernel {
    static constexpr int k_threads = 256;
    static constexpr int k_warps = 4;  // of an expert
    static constexpr int k_rows = k_threads / 32 / k_warps;
    static constexpr bool k_starts_early = true;
    using Norm = RowNorm<k_threads>;
    // Shared memory: the warps' sums, which are first those of the norm; whether this is the last block; scores; bias; the
    // normalised row; the router's rows.
    static constexpr int k_last_at = Norm::k_sum_bytes;
    static constexpr int k_scores_at = k_last_at + 16;
    static constexpr int64_t k_max_row_bytes = 24 * 1024;  // longer rows of the router are not copied
    static_assert(k_scores_at + 4 * (2 * exact::k_max_experts + k_max_norm_size) + k_rows * k_max_row_bytes <=
                  k_max_shared_bytes);

    Weight router;
    const float* h;  // the row, if there is no norm
    NormRow norm;    // x null: none
    Choice choice;
    float* score;  // [router.rows]
    int32_t* arrived;
    PostedPieces post;

    // With a norm there is one more block, which keeps the normalised row for later kernels; it also posts the row.
    Grid grid() const {
        return {n_blocks() + (norm.x != nullptr || posts ? 1 : 0), 1, rows_at() + k_rows * copied_bytes()};
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        if (t.block() == n_blocks()) return keep_row(t);
        copy_weights(t);
        const float* input = wait_for_row(t);
        t.template copies_wait<0>();
        t.sync();
        multiply(t, input);
        auto* is_last = reinterpret_cast<int32_t*>(t.shared() + k_last_at);
        if (!is_last_block(t, arrived, n_blocks(), is_last)) return;
        score_experts(t, score, router.rows, t.index(), k_threads, scores(t));
        t.sync();
        if (t.index() >= 32) return;
        Choice with_bias = choice;
        if (choice.bias != nullptr) with_bias.bias = scores(t) + router.rows;
        choose_experts(t, scores(t), router.rows, with_bias, 0);
        if constexpr (posts) {
            t.sync_warp();
            put_ids(t, choice.ids, 0, choice.n_used, post, number_of(t, post.turn), t.index(), 32);
        }
    }

  private:
    MINIM_HOST_DEVICE int32_t n_blocks() const {
        return (static_cast<int32_t>(router.rows) + k_rows - 1) / k_rows;
    }
    // Floats in shared memory, in whole pieces of 16 bytes.
    MINIM_HOST_DEVICE static int64_t float_bytes(int64_t count) { return (count + 3) / 4 * 16; }
    MINIM_HOST_DEVICE int64_t input_at() const { return k_scores_at + float_bytes(2 * router.rows); }
    MINIM_HOST_DEVICE int64_t rows_at() const {
        return input_at() + (norm.x == nullptr ? 0 : float_bytes(norm.size));
    }
    // The bytes of a row of the router in shared memory; 0: it is read where it is.
    MINIM_HOST_DEVICE int64_t copied_bytes() const {
        const bool is_aligned =
            reinterpret_cast<uintptr_t>(router.data) % 16 == 0 && router.row_bytes % 16 == 0;
        return is_aligned && router.row_bytes <= k_max_row_bytes ? router.row_bytes : 0;
    }
    // An expert of the block; the last one takes the place of one that does not exist.
    template <class T>
    MINIM_DEVICE int64_t expert(T& t, int row) const {
        const int64_t own = int64_t{t.block()} * k_rows + row;
        return own < router.rows ? own : router.rows - 1;
    }
    template <class T>
    MINIM_DEVICE float* scores(T& t) const {
        return reinterpret_cast<float*>(t.shared() + k_scores_at);
    }

    // Starts copying the block's rows and the bias.
    template <class T>
    MINIM_DEVICE void copy_weights(T& t) const {
        const auto bytes = static_cast<int>(copied_bytes());
        for (int row = 0; row < k_rows; ++row) {
            std::byte* to = t.shared() + rows_at() + row * bytes;
            const uint8_t* from = router.data + expert(t, row) * router.row_bytes;
            for (int at = 16 * t.index(); at < bytes; at += 16 * k_threads) t.copy_16(to + at, from + at);
        }
        if (choice.bias != nullptr) {
            float* bias = scores(t) + router.rows;
            for (int e = t.index(); e < router.rows; e += k_threads) t.copy_4(bias + e, choice.bias + e);
        }
        t.copies_end_group();
    }

    template <class T>
    MINIM_DEVICE void keep_row(T& t) const {
        if constexpr (posts) {
            if (norm.x == nullptr) {
                t.wait_for_inputs();
                copy_words(t, k_threads, h, post.h, router.cols);
            } else {
                normalise(t, {norm.h, norm.quantized, nullptr, post.h});
            }
            put_flag(t, 1, choice.n_used, post, number_of(t, post.turn));
        } else {
            normalise(t, {norm.h, norm.quantized});
        }
    }
    template <class T>
    MINIM_DEVICE void normalise(T& t, const NormedRow& to) const {
        Norm::run(t, norm, reinterpret_cast<float*>(t.shared()), to);
    }
    // Returns the row that the router is multiplied with.
    template <class T>
    MINIM_DEVICE const float* wait_for_row(T& t) const {
        if (norm.x == nullptr) {
            t.wait_for_inputs();
            return h;
        }
        auto* input = reinterpret_cast<float*>(t.shared() + input_at());
        normalise(t, {input, nullptr});
        return input;
    }

    template <class T>
    MINIM_DEVICE void multiply(T& t, const float* input) const {
        const int warp = t.index() / 32;
        const int row = warp / k_warps;
        const int64_t bytes = copied_bytes();
        const auto* copied = reinterpret_cast<const uint8_t*>(t.shared() + rows_at()) + row * bytes;
        const uint8_t* const weights[1] = {bytes > 0 ? copied
                                                     : router.data + expert(t, row) * router.row_bytes};
        float sum[1][1] = {};
        FloatRows<Block>::add(weights, router.cols, {t.index() % 32, warp % k_warps, k_warps}, &input, sum);
        const float total_of_warp = sum_of_lanes(t, sum[0][0]);
        auto* sums = reinterpret_cast<float*>(t.shared());
        if (t.index() % 32 == 0) sums[warp] = total_of_warp;
        t.sync();
        if (t.index() >= k_rows) return;
        float total = 0.0F;
        for (int w = 0; w < k_warps; ++w) total += sums[t.index() * k_warps + w];
        const int64_t own = int64_t{t.block()} * k_rows + t.index();
        if (own < router.rows) score[own] = total * router.scale;
    }
};

}  // namespace minim::cuda::fast
