// Attention's two passes over a page of the KV cache: scores of its keys, weighted sums of its values. Both read
// a row once for several of the queries that share it.
#pragma once

#include "cpu/generic/elements.h"
#include "cpu/generic/linear_float.h"
#include "cpu/kernels.h"
#include "panel/kernel_inline.h"

namespace minim::cpu::generic {

template <class V, int n>
struct Vectors {
    typename V::F32 of[n];
};

// The columns from c on, fewer than 16, which few models have: out of line, so that sums need no place in memory
// elsewhere.
template <class V, class Elements, int n_rows, int n_queries>
__attribute__((noinline)) Vectors<V, n_rows * n_queries> add_last_columns(
    const std::byte* const* row, const float* const* query, int64_t c, int64_t count,
    Vectors<V, n_rows * n_queries> sum) {
    for (int t = 0; t < n_queries; ++t) {
        const auto q = load_part<V>(query[t] + c, count);
        for (int r = 0; r < n_rows; ++r) {
            const auto key = Elements::load_part(row[r], c, count);
            sum.of[t * n_rows + r] = V::fma(key, q, sum.of[t * n_rows + r]);
        }
    }
    return sum;
}

// The lanes of the scores of keys r0 .. r0 + n_rows - 1 for n_queries queries: those of query t and key r to
// lanes[(4 t + r) * 16]. They go there one by one: GCC copies a whole array of vectors in small pieces.
template <class V, class Elements, int n_rows, int n_queries>
MINIM_KERNEL_INLINE void score_tile(const LinearArgs& args, const float* const* query, int64_t r0,
                                    float* lanes) {
    const std::byte* row[n_rows];
    for (int r = 0; r < n_rows; ++r) row[r] = Linear<V>::weight_row(args, r0 + r);
    Vectors<V, n_rows * n_queries> sum;
    for (auto& zero : sum.of) zero = V::zero();
    int64_t c = 0;
    for (; c + 16 <= args.cols; c += 16) {
        typename V::F32 key[n_rows];
        for (int r = 0; r < n_rows; ++r) key[r] = Elements::load(row[r], c);
        for (int t = 0; t < n_queries; ++t) {
            const auto q = load<V>(query[t] + c);
            for (int r = 0; r < n_rows; ++r)
                sum.of[t * n_rows + r] = V::fma(key[r], q, sum.of[t * n_rows + r]);
        }
    }
    if (c < args.cols)
        sum = add_last_columns<V, Elements, n_rows, n_queries>(row, query, c, args.cols - c, sum);
    for (int t = 0; t < n_queries; ++t) {
        for (int r = 0; r < n_rows; ++r) V::store(lanes + (4 * t + r) * 16, sum.of[t * n_rows + r]);
    }
}

// Fetches what lies k_keys_ahead bytes behind `count` keys, or behind the start of the next keys where these end.
inline constexpr int64_t k_keys_ahead = 4096;
MINIM_KERNEL_INLINE void fetch_keys(const LinearArgs& args, int64_t r, int64_t count) {
    const int64_t left = (args.n_rows - r) * args.row_bytes;
    const std::byte* ahead = args.weight + r * args.row_bytes + k_keys_ahead;
    if (left <= k_keys_ahead) {
        if (args.next_weight == nullptr) return;
        ahead = args.next_weight + (k_keys_ahead - left);
    }
    for (int64_t at = 0; at < count * args.row_bytes; at += 64) __builtin_prefetch(ahead + at);
}

// Four keys for n_queries queries, those of the tokens from t0 on: y[t][r], each a float sum over the columns
// (README.md, rule 1). Their lanes are added up together, which is less work than one by one.
template <class V, class Elements, int n_queries>
MINIM_KERNEL_INLINE void score_four(const LinearArgs& args, const float* const* query, int64_t r0,
                                    int64_t t0) {
    constexpr int k_rows = V::template score_rows<n_queries>();
    static_assert(4 % k_rows == 0);
    alignas(64) float lanes[n_queries * 4 * 16];
    for (int r = 0; r < 4; r += k_rows)
        score_tile<V, Elements, k_rows, n_queries>(args, query, r0 + r, lanes + 16 * r);
    for (int t = 0; t < n_queries; ++t) {
        typename V::F32 sum[4];
        for (int r = 0; r < 4; ++r) sum[r] = load<V>(lanes + (4 * t + r) * 16);
        float dot[4];
        V::sum_four(sum, dot);
        float* y = args.y + (t0 + t) * args.y_stride + r0;
        for (int r = 0; r < 4; ++r) y[r] = dot[r] * args.scale;
    }
}

template <class V, class Elements, int n_queries>
void score_queries(const LinearArgs& args, int64_t t0) {
    const float* query[n_queries];
    for (int t = 0; t < n_queries; ++t)
        query[t] = reinterpret_cast<const float*>(Linear<V>::input_row(args, t0 + t));
    int64_t r = 0;
    for (; r + 4 <= args.n_rows; r += 4) {
        if (t0 == 0) fetch_keys(args, r, 4);
        score_four<V, Elements, n_queries>(args, query, r, t0);
    }
    for (; r < args.n_rows; ++r) {
        alignas(64) float lanes[n_queries * 4 * 16];
        score_tile<V, Elements, 1, n_queries>(args, query, r, lanes);
        for (int t = 0; t < n_queries; ++t)
            args.y[(t0 + t) * args.y_stride + r] = V::sum(load<V>(lanes + 4 * t * 16)) * args.scale;
    }
}

// y[t][r] = scale * (key r) . (query t); args.add is not looked at.
template <class V, class Elements>
void scores(const LinearArgs& args) {
    int64_t t = 0;
    for (; t + 6 <= args.n_tokens; t += 6) score_queries<V, Elements, 6>(args, t);
    for (; t + 2 <= args.n_tokens; t += 2) score_queries<V, Elements, 2>(args, t);
    for (; t < args.n_tokens; ++t) score_queries<V, Elements, 1>(args, t);
}

// `n_sums` sums of the same rows over n_vectors times 16 columns from c on: every lane is a column, rows are
// added in order.
template <class V, class Elements, int n_sums, int n_vectors>
void weighted_sum_tile(const WeightedSumArgs& args, int64_t first_sum, int64_t c) {
    typename V::F32 sum[n_sums][n_vectors];
    float* y = args.y + first_sum * args.y_stride + c;
    for (int s = 0; s < n_sums; ++s) {
        for (int v = 0; v < n_vectors; ++v) sum[s][v] = load<V>(y + s * args.y_stride + 16 * v);
    }
    const float* weight = args.weight + first_sum * args.weight_stride;
    // Evenly, as each column of the rows is passed: a memory that is asked in bursts gives less.
    const std::byte* next = first_sum == 0 ? args.next_rows : nullptr;
    if (next != nullptr) next += c * args.row_bytes / args.cols;
    for (int64_t r = 0; r < args.n_rows; ++r) {
        const std::byte* row = args.rows + r * args.row_bytes;
        if (next != nullptr) __builtin_prefetch(next + r * args.row_bytes);
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

// The columns of one sum that do not fill a vector.
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
