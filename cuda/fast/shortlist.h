// SPDX-License-Identifier: Apache-2.0
// Top-k of rows of logits (`backend/shortlist.h`). The kernels are in `shortlist_kernels.h`.
//
// All pointers lie in the device's memory.
#pragma once

#include <cstdint>

#include "backend/shortlist.h"
#include "base/platform.h"
#include "cuda/fast/device.h"

namespace minim::cuda::fast {

inline constexpr int k_list = k_most_candidates;       // candidates that are kept together, sorted
inline constexpr int k_shortlist_piece = 32 * k_list;  // logits of a block

MINIM_HOST_DEVICE constexpr int64_t shortlist_pieces(int64_t n_vocab) {
    return (n_vocab + k_shortlist_piece - 1) / k_shortlist_piece;
}

// The facts of a piece of a row, besides its candidates.
struct PieceFacts {
    double total;  // sum of weights relative to that of its own highest logit
    int32_t n_nan;
};

// What the first kernel passes to the second, for n rows.
struct ShortlistWork {
    PieceFacts* pieces;  // [n, shortlist_pieces(n_vocab)]
    uint64_t* keys;      // [n, shortlist_pieces(n_vocab), k_list]
};

void shortlist(Stream stream, const float* logits, int64_t n, int64_t n_vocab, const ShortlistWork& work,
               const backend::ShortlistTask& task);

}  // namespace minim::cuda::fast
