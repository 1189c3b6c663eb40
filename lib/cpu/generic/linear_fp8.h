// SPDX-License-Identifier: Apache-2.0
// y = W h for weights of FP8_E4M3_B128 and MXFP8 and F32 inputs:
//
//   y(row) = sum over blocks of scale(row, block) * (sum over its columns of e4m3(row, column) * h(column))
//
// The lanes are those of linear_float.h. Each lane first sums its products of a block, then adds this sum to its total with one
// fused multiply-add by the block's scale.
#pragma once

#include <cstring>

#include "cpu/generic/elements.h"
#include "cpu/generic/float_tiles.h"
#include "format/e2m1.h"
#include "format/fp8_e4m3_b128.h"
#include "format/mxfp8.h"

namespace minim::cpu::generic {

inline float scale_of(FP8_E4M3_B128, const std::byte* block) {
    float scale;
    memcpy(&scale, block + FP8_E4M3_B128::scale_at, sizeof(scale));
    return scale;
}

inline float scale_of(MXFP8, const std::byte* block) {
    return e8m0_to_float(static_cast<uint8_t>(block[MXFP8::exponent_at]));
}

template <class V, class Block, int n_rows, int n_tokens>
void linear_fp8_tile(const LinearArgs& args, int64_t r0, int64_t t0) {
    const std::byte* block[n_rows];
    const float* input[n_tokens];
    for (int r = 0; r < n_rows; ++r) block[r] = Linear<V>::weight_row(args, r0 + r);
    for (int t = 0; t < n_tokens; ++t) {
        input[t] = reinterpret_cast<const float*>(Linear<V>::input_row(args, t0 + t));
    }
    typename V::F32 sum[n_rows * n_tokens];
    for (auto& lanes : sum) lanes = V::zero();
    RowsAhead<n_rows> ahead(args, r0);
    const bool fetches = t0 == 0;
    for (int64_t c = 0; c < args.cols; c += Block::block_elems) {
        typename V::F32 part[n_rows * n_tokens];
        for (auto& lanes : part) lanes = V::zero();
        for (int k = 0; k < Block::block_elems; k += 32) {
            for (int r = 0; r < n_rows; ++r) {
                if (fetches && k % 64 == 0) ahead.fetch(r, k);
                typename V::F32 w[2];
                V::load_e4m3_by_256(block[r] + Block::codes_at + k, w);
                for (int t = 0; t < n_tokens; ++t) {
                    auto& lanes = part[r * n_tokens + t];
                    lanes = V::fma(w[0], load<V>(input[t] + c + k), lanes);
                    lanes = V::fma(w[1], load<V>(input[t] + c + k + 16), lanes);
                }
            }
        }
        for (int r = 0; r < n_rows; ++r) {
            const auto factor = V::all(k_e4m3_half_factor * scale_of(Block(), block[r]));
            for (int t = 0; t < n_tokens; ++t) {
                sum[r * n_tokens + t] = V::fma(part[r * n_tokens + t], factor, sum[r * n_tokens + t]);
            }
            block[r] += Block::block_bytes;
            ahead.row[r] += Block::block_bytes;
        }
    }
    for (int r = 0; r < n_rows; ++r) {
        for (int t = 0; t < n_tokens; ++t) Linear<V>::put(args, r0 + r, t0 + t, sum[r * n_tokens + t]);
    }
}

template <class V, class Block>
void linear_fp8(const LinearArgs& args) {
    for_each_tile<V::k_fp8_rows, V::k_fp8_tokens, 4>(
        args, [&](int64_t r, auto n_rows, int64_t t, auto n_tokens) {
            linear_fp8_tile<V, Block, decltype(n_rows)::k_value, decltype(n_tokens)::k_value>(args, r, t);
        });
}

}  // namespace minim::cpu::generic
