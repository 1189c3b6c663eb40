// Kernels on rows of plain floats: normalisation, sums of rows, narrowing.
#pragma once

#include "cpu/generic/elements.h"
#include "cpu/kernels.h"

namespace minim::cpu::generic {

template <class V>
void rms_norm(const float* x, int64_t n, const float* weight, float eps, float* h) {
    auto squares = V::zero();
    for_each_vector(n, [&](int64_t i, int64_t count) {
        const auto v = load_up_to<V>(x + i, count);
        squares = V::fma(v, v, squares);
    });
    const float mean = V::sum(squares) / static_cast<float>(n);
    const auto factor = V::all(1.0F / __builtin_sqrtf(mean + eps));
    for_each_vector(n, [&](int64_t i, int64_t count) {
        const auto normalised = V::mul(load_up_to<V>(x + i, count), factor);
        store_up_to<V>(h + i, V::mul(normalised, load_up_to<V>(weight + i, count)), count);
    });
}

template <class V>
void add_scaled(const float* x, float factor, int64_t n, float* y) {
    const auto f = V::all(factor);
    for_each_vector(n, [&](int64_t i, int64_t count) {
        store_up_to<V>(y + i, V::fma(f, load_up_to<V>(x + i, count), load_up_to<V>(y + i, count)), count);
    });
}

template <class V>
void narrow_f16(const float* x, int64_t n, std::byte* out) {
    for_each_vector(n, [&](int64_t i, int64_t count) {
        alignas(64) std::byte halves[32];
        const auto v = load_up_to<V>(x + i, count);
        V::store_f16(count == 16 ? out + 2 * i : halves, v);
        if (count < 16) memcpy(out + 2 * i, halves, static_cast<size_t>(2 * count));
    });
}

// `n_sums` sums of the same rows over the columns c .. c + count: every lane is a column, rows are added in
// order.
template <class V, class Elements, int n_sums>
void weighted_sum_columns(const WeightedSumArgs& args, int64_t first_sum, int64_t c, int64_t count) {
    typename V::F32 sum[n_sums];
    for (int s = 0; s < n_sums; ++s)
        sum[s] = load_up_to<V>(args.y + (first_sum + s) * args.y_stride + c, count);
    const float* weight = args.weight + first_sum * args.weight_stride;
    for (int64_t r = 0; r < args.n_rows; ++r) {
        const std::byte* row = args.rows + r * args.row_bytes;
        const auto v = count == 16 ? Elements::load(row, c) : Elements::load_part(row, c, count);
        for (int s = 0; s < n_sums; ++s)
            sum[s] = V::fma(V::all(weight[s * args.weight_stride + r]), v, sum[s]);
    }
    for (int s = 0; s < n_sums; ++s)
        store_up_to<V>(args.y + (first_sum + s) * args.y_stride + c, sum[s], count);
}

template <class V, class Elements>
void weighted_sum(const WeightedSumArgs& args) {
    for_each_vector(args.cols, [&](int64_t c, int64_t count) {
        int64_t s = 0;
        for (; s + 6 <= args.n_sums; s += 6) weighted_sum_columns<V, Elements, 6>(args, s, c, count);
        for (; s + 2 <= args.n_sums; s += 2) weighted_sum_columns<V, Elements, 2>(args, s, c, count);
        for (; s < args.n_sums; ++s) weighted_sum_columns<V, Elements, 1>(args, s, c, count);
    });
}

}  // namespace minim::cpu::generic
