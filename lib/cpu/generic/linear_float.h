// SPDX-License-Identifier: Apache-2.0
// y = W h for F32, F16 and BF16 weights and F32 inputs; also for rows decoded from other formats.
#pragma once

#include "cpu/generic/elements.h"
#include "cpu/generic/float_tiles.h"
#include "cpu/generic/linear_fp8.h"
#include "cpu/kernels.h"

namespace minim::cpu::generic {

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
    const RowsAhead<n_rows> ahead(args, r0);
    const bool fetches = t0 == 0;
    int64_t i = 0;
    for (; i + 16 <= args.cols; i += 16) {
        const int64_t at = i * Elements::k_bytes;
        if (fetches && at % 64 == 0) {
            for (int r = 0; r < n_rows; ++r) ahead.fetch(r, at);
        }
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

// The number of rows that are summed together for one token. One row at a time reads memory in sequence at full bandwidth. With
// two bytes per number, one row's chain of additions is slower than memory, so several rows are summed together.
template <class V, class Elements>
inline constexpr int k_rows_of_one = Elements::k_bytes == 4 ? 1 : V::k_half_rows_of_one;

template <class V, class Elements>
void linear_float(const LinearArgs& args) {
    for_each_tile<V::k_float_rows, V::k_float_tokens, k_rows_of_one<V, Elements>>(
        args, [&](int64_t r, auto n_rows, int64_t t, auto n_tokens) {
            linear_float_tile<V, Elements, decltype(n_rows)::k_value, decltype(n_tokens)::k_value>(args, r,
                                                                                                   t);
        });
}

template <class V>
constexpr LinearKernels float_kernels() {
    LinearKernels kernels = {};
    kernels.by_format[static_cast<size_t>(Format::f32)] = {Activation::f32, linear_float<V, F32Elements<V>>};
    kernels.by_format[static_cast<size_t>(Format::f16)] = {Activation::f32, linear_float<V, F16Elements<V>>};
    kernels.by_format[static_cast<size_t>(Format::bf16)] = {Activation::f32,
                                                            linear_float<V, Bf16Elements<V>>};
    kernels.by_format[static_cast<size_t>(Format::fp8_e4m3_b128)] = {Activation::f32,
                                                                     linear_fp8<V, FP8_E4M3_B128>};
    kernels.by_format[static_cast<size_t>(Format::mxfp8)] = {Activation::f32, linear_fp8<V, MXFP8>};
    return kernels;
}

}  // namespace minim::cpu::generic
