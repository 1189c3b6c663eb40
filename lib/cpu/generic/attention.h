// Attention's two passes over a page of the KV cache: scores of its keys, weighted sums of its values. Both read
// a row once for several of the queries that share it.
#pragma once

#include "cpu/generic/elements.h"
#include "cpu/generic/linear_float.h"
#include "cpu/kernels.h"

namespace minim::cpu::generic {

template <class V, int n>
void sum_each(const typename V::F32* a, float* out) {
    int i = 0;
    for (; i + 4 <= n; i += 4) V::sum_four(a + i, out + i);
    for (; i < n; ++i) out[i] = V::sum(a[i]);
}

// Scores of n_rows keys for n_queries queries: y[t][r], each a float sum over the columns (README.md, rule 1).
template <class V, class Elements, int n_rows, int n_queries>
void score_tile(const LinearArgs& args, int64_t r0, int64_t t0) {
    const std::byte* row[n_rows];
    const float* query[n_queries];
    for (int r = 0; r < n_rows; ++r) row[r] = Linear<V>::weight_row(args, r0 + r);
    for (int t = 0; t < n_queries; ++t)
        query[t] = reinterpret_cast<const float*>(Linear<V>::input_row(args, t0 + t));
    typename V::F32 sum[n_queries * n_rows];
    for (auto& lanes : sum) lanes = V::zero();
    int64_t c = 0;
    for (; c + 16 <= args.cols; c += 16) {
        typename V::F32 key[n_rows];
        for (int r = 0; r < n_rows; ++r) key[r] = Elements::load(row[r], c);
        for (int t = 0; t < n_queries; ++t) {
            const auto q = load<V>(query[t] + c);
            for (int r = 0; r < n_rows; ++r) sum[t * n_rows + r] = V::fma(key[r], q, sum[t * n_rows + r]);
        }
    }
    if (c < args.cols) {
        const int64_t count = args.cols - c;
        for (int t = 0; t < n_queries; ++t) {
            const auto q = load_part<V>(query[t] + c, count);
            for (int r = 0; r < n_rows; ++r) {
                const auto key = Elements::load_part(row[r], c, count);
                sum[t * n_rows + r] = V::fma(key, q, sum[t * n_rows + r]);
            }
        }
    }
    float dot[n_queries * n_rows];
    sum_each<V, n_queries * n_rows>(sum, dot);
    for (int t = 0; t < n_queries; ++t) {
        float* y = args.y + (t0 + t) * args.y_stride + r0;
        for (int r = 0; r < n_rows; ++r) y[r] = dot[t * n_rows + r] * args.scale;
    }
}

template <class V, class Elements, int n_queries>
void score_queries(const LinearArgs& args, int64_t t0) {
    constexpr int k_rows = V::template score_rows<n_queries>();
    int64_t r = 0;
    for (; r + k_rows <= args.n_rows; r += k_rows) score_tile<V, Elements, k_rows, n_queries>(args, r, t0);
    for (; r < args.n_rows; ++r) score_tile<V, Elements, 1, n_queries>(args, r, t0);
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
    for (int64_t r = 0; r < args.n_rows; ++r) {
        const std::byte* row = args.rows + r * args.row_bytes;
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
