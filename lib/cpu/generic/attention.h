// SPDX-License-Identifier: Apache-2.0
// Attention's two passes over a page of the KV cache: scores of its keys, weighted sums of its values. Both read
// a row once for several of the queries that share it.
#pragma once

#include <cstring>
#include <type_traits>

#include "cpu/generic/elements.h"
#include "cpu/kernels.h"
#include "panel/kernel_inline.h"

namespace minim::cpu::generic {

// ---- scores ----
//
// A score is summed in four lanes, column c in lane c mod 4, in order of c (README.md, rule 4). To fill a register, the same four
// columns of several keys are placed side by side: for every four columns a tile has four registers, of which number i has keys
// i, 4 + i, 8 + i ... of the tile. The sums of a query's four registers are then in the order of the keys.

template <class V>
inline constexpr int k_register_floats = 4 * V::k_quads;
template <class V>
inline constexpr int k_tile_keys = 4 * V::k_quads;  // one quad for each key

// Returns row r of the keys, or the last row if r is beyond it.
MINIM_KERNEL_INLINE const std::byte* key_row(const ScoreArgs& args, int64_t r) {
    return args.keys + (r < args.n_keys ? r : args.n_keys - 1) * args.key_bytes;
}

// Copies keys r0 .. r0 + k_tile_keys - 1 to args.tile.
template <class V, class Elements>
MINIM_KERNEL_INLINE void lay_keys_side_by_side(const ScoreArgs& args, int64_t r0) {
    using Quads = typename V::Quads;
    constexpr int k_register = k_register_floats<V>;
    for (int i = 0; i < 4; ++i) {
        const std::byte* row[V::k_quads];
        for (int k = 0; k < V::k_quads; ++k) row[k] = key_row(args, r0 + 4 * k + i);
        float* out = args.tile + i * k_register;
        for (int64_t c = 0; c < args.cols; c += 16) {
            typename V::F32 columns[V::k_quads];
            for (int k = 0; k < V::k_quads; ++k) {
                columns[k] = c + 16 <= args.cols ? Elements::load(row[k], c)
                                                 : Elements::load_part(row[k], c, args.cols - c);
            }
            Quads quads[4];
            V::quads_of(columns, quads);
            for (int m = 0; m < 4; ++m) V::store_quads(out + (c + 4 * m) * k_register, quads[m]);
        }
    }
}

// Copies `count` floats (1 to 3) and pads them with zeros. Must be inlined: a call would force the caller's sums out of
// registers.
MINIM_KERNEL_INLINE const float* pad_to_four(const float* from, int64_t count, float (&to)[4]) {
    to[0] = from[0];
    to[1] = count > 1 ? from[1] : 0.0F;
    to[2] = count > 2 ? from[2] : 0.0F;
    to[3] = 0.0F;
    return to;
}

template <class V, int n_queries>
MINIM_KERNEL_INLINE void put_scores(const ScoreArgs& args, int64_t r0, int64_t t0,
                                    const typename V::Quads (&sum)[n_queries][4],
                                    const float (&factor)[n_queries]) {
    using Quads = typename V::Quads;
    constexpr int k_register = k_register_floats<V>;
    // This loop is kept short, so that it is certainly unrolled: sums with an index unknown at compile time would stay in memory.
    float scores[n_queries][k_register];
    for (int t = 0; t < n_queries; ++t) {
        const Quads dots = V::sum_quads(sum[t][0], sum[t][1], sum[t][2], sum[t][3]);
        V::store_quads(scores[t], V::scale_quads(dots, factor[t]));
    }
    const int64_t count = args.n_keys - r0;
    for (int t = 0; t < n_queries; ++t) {
        float* y = args.y + (t0 + t) * args.y_stride + r0;
        if (count >= k_register) {
            memcpy(y, scores[t], sizeof(scores[t]));
        } else {
            memcpy(y, scores[t], count * sizeof(float));
        }
    }
}

// Computes the scores of the tile's keys for queries t0 .. t0 + n_queries - 1. `ahead`: keys to prefetch meanwhile, or null.
// Prefetches are spread evenly: bursts of requests get less bandwidth.
template <class V, int n_queries>
MINIM_KERNEL_INLINE void score_tile(const ScoreArgs& args, int64_t r0, int64_t t0, const std::byte* ahead) {
    using Quads = typename V::Quads;
    constexpr int k_register = k_register_floats<V>;
    const float* query[n_queries];
    for (int t = 0; t < n_queries; ++t) query[t] = args.queries + args.query_rows[t0 + t] * args.cols;
    Quads sum[n_queries][4];
    for (auto& of_query : sum) {
        for (Quads& lanes : of_query) lanes = V::zero_quads();
    }
    const float* tile = args.tile;
    float last[n_queries][4];
    const int64_t step_bytes = ahead == nullptr ? 0 : 4 * k_tile_keys<V> * args.key_bytes / args.cols;
    for (int64_t c = 0; c < args.cols; c += 4) {
        for (int64_t at = 0; at < step_bytes; at += 64) __builtin_prefetch(ahead + at);
        ahead += step_bytes;
        if (args.cols - c < 4) {  // only in few models
            for (int t = 0; t < n_queries; ++t) query[t] = pad_to_four(query[t], args.cols - c, last[t]);
        }
        Quads q[n_queries];
        for (int t = 0; t < n_queries; ++t) {
            q[t] = V::all_quads(query[t]);
            query[t] += 4;
        }
        for (int i = 0; i < 4; ++i) {
            const Quads key = V::load_quads(tile + i * k_register);
            for (int t = 0; t < n_queries; ++t) sum[t][i] = V::fma_quads(q[t], key, sum[t][i]);
        }
        tile += 4 * k_register;
    }
    float factor[n_queries];
    for (float& of_query : factor) of_query = args.scale;
    put_scores<V, n_queries>(args, r0, t0, sum, factor);
}

// Calls score(n, t, ahead) for all queries, n of them at a time from query t on. `ahead`: the keys to prefetch; null for all
// calls but the first.
template <int n_together, class Score>
MINIM_KERNEL_INLINE void for_each_query_tile(const ScoreArgs& args, int64_t r, const Score& score) {
    const std::byte* ahead = args.next_keys == nullptr ? nullptr : args.next_keys + r * args.key_bytes;
    int64_t t = 0;
    const auto next = [&](auto n) {
        score(n, t, ahead);
        ahead = nullptr;
        t += n;
    };
    while (t + n_together <= args.n_queries) next(std::integral_constant<int, n_together>());
    if constexpr (n_together > 2) {
        while (t + 2 <= args.n_queries) next(std::integral_constant<int, 2>());
    }
    while (t < args.n_queries) next(std::integral_constant<int, 1>());
}

template <class V, class Elements>
void scores(const ScoreArgs& args) {
    for (int64_t r = 0; r < args.n_keys; r += k_tile_keys<V>) {
        lay_keys_side_by_side<V, Elements>(args, r);
        for_each_query_tile<V::k_score_queries>(
            args, r, [&](auto n, int64_t t, const std::byte* ahead) { score_tile<V, n>(args, r, t, ahead); });
    }
}

// ---- sums of values ----

// Computes `n_sums` sums of the same rows over n_vectors times 16 columns from c on: every lane is a column, rows are added in
// order.
template <class V, class Elements, int n_sums, int n_vectors>
void weighted_sum_tile(const WeightedSumArgs& args, int64_t first_sum, int64_t c) {
    typename V::F32 sum[n_sums][n_vectors];
    float* y = args.y + first_sum * args.y_stride + c;
    for (int s = 0; s < n_sums; ++s) {
        for (int v = 0; v < n_vectors; ++v) sum[s][v] = load<V>(y + s * args.y_stride + 16 * v);
    }
    const float* weight = args.weight + first_sum * args.weight_stride;
    // Prefetches are spread evenly over the columns: bursts of requests get less bandwidth.
    const int64_t part_bytes = 16 * n_vectors * args.row_bytes / args.cols;
    const std::byte* next = first_sum == 0 ? args.next_rows : nullptr;
    if (next != nullptr) next += c * args.n_rows * args.row_bytes / args.cols;
    for (int64_t r = 0; r < args.n_rows; ++r) {
        const std::byte* row = args.rows + r * args.row_bytes;
        if (next != nullptr) {
            for (int64_t at = 0; at < part_bytes; at += 64) __builtin_prefetch(next + r * part_bytes + at);
        }
        typename V::F32 value[n_vectors];
        for (int v = 0; v < n_vectors; ++v) value[v] = Elements::load(row, c + 16 * v);
        for (int s = 0; s < n_sums; ++s) {
            const auto w = V::all(weight[s * args.weight_stride + r]);
            for (int v = 0; v < n_vectors; ++v) sum[s][v] = V::fma(w, value[v], sum[s][v]);
        }
    }
    for (int s = 0; s < n_sums; ++s) {
        for (int v = 0; v < n_vectors; ++v) V::store(y + s * args.y_stride + 16 * v, sum[s][v]);
    }
}

// Computes the columns of one sum that do not fill a vector.
template <class V, class Elements>
void weighted_sum_rest(const WeightedSumArgs& args, int64_t s, int64_t c) {
    const int64_t count = args.cols - c;
    float* y = args.y + s * args.y_stride + c;
    auto sum = load_part<V>(y, count);
    for (int64_t r = 0; r < args.n_rows; ++r) {
        const auto value = Elements::load_part(args.rows + r * args.row_bytes, c, count);
        sum = V::fma(V::all(args.weight[s * args.weight_stride + r]), value, sum);
    }
    store_part<V>(y, sum, count);
}

template <class V, class Elements, int n_sums>
void weighted_sums(const WeightedSumArgs& args, int64_t s) {
    constexpr int k_vectors = V::k_value_vectors;
    int64_t c = 0;
    for (; c + 16 * k_vectors <= args.cols; c += 16 * k_vectors)
        weighted_sum_tile<V, Elements, n_sums, k_vectors>(args, s, c);
    for (; c + 16 <= args.cols; c += 16) weighted_sum_tile<V, Elements, n_sums, 1>(args, s, c);
    if (c == args.cols) return;
    for (int64_t i = 0; i < n_sums; ++i) weighted_sum_rest<V, Elements>(args, s + i, c);
}

template <class V, class Elements>
void weighted_sum(const WeightedSumArgs& args) {
    int64_t s = 0;
    for (; s + 6 <= args.n_sums; s += 6) weighted_sums<V, Elements, 6>(args, s);
    for (; s + 2 <= args.n_sums; s += 2) weighted_sums<V, Elements, 2>(args, s);
    for (; s < args.n_sums; ++s) weighted_sums<V, Elements, 1>(args, s);
}

}  // namespace minim::cpu::generic
