// y = W h for F32, F16 and BF16 weights and F32 inputs; also rows decoded from other formats.
#pragma once

#include "cpu/generic/elements.h"
#include "cpu/kernels.h"

namespace minim::cpu::generic {

template <class V>
struct Linear {
    static const std::byte* weight_row(const LinearArgs& args, int64_t r) {
        return args.weight + r * args.row_bytes;
    }

    static const std::byte* input_row(const LinearArgs& args, int64_t t) {
        const int64_t row = args.input_rows != nullptr ? args.input_rows[t] : t;
        return args.input + row * args.input_row_bytes;
    }

    static void put(const LinearArgs& args, int64_t r, int64_t t, typename V::F32 lanes) {
        float& y = args.y[t * args.y_stride + r];
        const float dot = V::sum(lanes) * args.scale;
        y = args.add ? y + dot : dot;
    }
};

template <int value>
struct Count {
    static constexpr int k_value = value;
};

// tile(first row, rows, first token, tokens) computes one register tile; tiles change no result, they only
// let a loaded weight serve several tokens and hide the latency of sums. Tokens outside, rows inside: a tile
// of rows is read once from memory and then again from the cache.
template <int token_tile, int row_tile, class Tile>
void for_each_tile(const LinearArgs& args, const Tile& tile) {
    int64_t t = 0;
    for (; t + token_tile <= args.n_tokens; t += token_tile) {
        for (int64_t r = 0; r < args.n_rows; ++r) tile(r, Count<1>(), t, Count<token_tile>());
    }
    for (; t < args.n_tokens; ++t) {
        int64_t r = 0;
        for (; r + row_tile <= args.n_rows; r += row_tile) tile(r, Count<row_tile>(), t, Count<1>());
        for (; r < args.n_rows; ++r) tile(r, Count<1>(), t, Count<1>());
    }
}

template <class V, class Elements, int n_rows, int n_tokens>
void linear_float_tile(const LinearArgs& args, int64_t r0, int64_t t0) {
    const std::byte* row[n_rows];
    const float* input[n_tokens];
    for (int r = 0; r < n_rows; ++r) row[r] = Linear<V>::weight_row(args, r0 + r);
    for (int t = 0; t < n_tokens; ++t) {
        input[t] = reinterpret_cast<const float*>(Linear<V>::input_row(args, t0 + t));
    }
    typename V::F32 sum[n_rows * n_tokens];
    for (auto& lanes : sum) lanes = V::zero();
    typename V::F32 x[n_tokens];
    int64_t i = 0;
    for (; i + 16 <= args.cols; i += 16) {
        for (int t = 0; t < n_tokens; ++t) x[t] = load<V>(input[t] + i);
        for (int r = 0; r < n_rows; ++r) {
            const auto w = Elements::load(row[r], i);
            for (int t = 0; t < n_tokens; ++t) sum[r * n_tokens + t] = V::fma(w, x[t], sum[r * n_tokens + t]);
        }
    }
    if (i < args.cols) {
        for (int t = 0; t < n_tokens; ++t) x[t] = load_part<V>(input[t] + i, args.cols - i);
        for (int r = 0; r < n_rows; ++r) {
            const auto w = Elements::load_part(row[r], i, args.cols - i);
            for (int t = 0; t < n_tokens; ++t) sum[r * n_tokens + t] = V::fma(w, x[t], sum[r * n_tokens + t]);
        }
    }
    for (int r = 0; r < n_rows; ++r) {
        for (int t = 0; t < n_tokens; ++t) Linear<V>::put(args, r0 + r, t0 + t, sum[r * n_tokens + t]);
    }
}

template <class V, class Elements>
void linear_float(const LinearArgs& args) {
    constexpr int k_tile = 4;
    for_each_tile<k_tile, k_tile>(args, [&](int64_t r, auto n_rows, int64_t t, auto n_tokens) {
        linear_float_tile<V, Elements, decltype(n_rows)::k_value, decltype(n_tokens)::k_value>(args, r, t);
    });
}

template <class V>
constexpr LinearKernels float_kernels() {
    LinearKernels kernels = {};
    kernels.by_format[static_cast<size_t>(Format::f32)] = {Activation::f32, linear_float<V, F32Elements<V>>};
    kernels.by_format[static_cast<size_t>(Format::f16)] = {Activation::f32, linear_float<V, F16Elements<V>>};
    kernels.by_format[static_cast<size_t>(Format::bf16)] = {Activation::f32,
                                                            linear_float<V, Bf16Elements<V>>};
    return kernels;
}

}  // namespace minim::cpu::generic
