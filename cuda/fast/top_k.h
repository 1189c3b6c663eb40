// SPDX-License-Identifier: Apache-2.0
// Top-k of rows of logits (`backend/top_k.h`). The kernels are in `top_k_kernels.h`.
//
// All pointers lie in the device's memory.
#pragma once

#include <cstdint>

#include "backend/top_k.h"
#include "base/platform.h"
#include "cuda/fast/device.h"

namespace minim::cuda::fast {

inline constexpr int k_list = k_max_candidates;    // candidates that are kept together, sorted
inline constexpr int k_top_k_piece = 32 * k_list;  // logits of a block

MINIM_HOST_DEVICE constexpr int64_t top_k_pieces(int64_t n_vocab) {
    return (n_vocab + k_top_k_piece - 1) / k_top_k_piece;
}

// The facts of a piece of a row, besides its candidates.
struct PieceFacts {
    double total;  // sum of weights relative to that of its own highest logit
    int32_t n_nan;
};

// What the first kernel passes to the second, for n rows.
struct TopKWork {
    PieceFacts* pieces;  // [n, top_k_pieces(n_vocab)]
    uint64_t* keys;      // [n, top_k_pieces(n_vocab), k_list]
};

void top_k(Stream stream, const float* logits, int64_t n, int64_t n_vocab, const TopKWork& work,
           const backend::TopKTask& task);

}  // namespace minim::cuda::fast
