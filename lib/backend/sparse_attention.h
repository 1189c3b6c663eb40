// SPDX-License-Identifier: Apache-2.0
// Block-sparse attention (MiniMax-M3): a row attends to the keys of a few blocks, which its index queries choose.
//
// Block b of a sequence is the positions [b * block, (b + 1) * block). A block's score for index head g and a row at
// position p is the largest product of the head's query and the index key of a position of the block, at most p. Each
// index head chooses for the KV head of the same number and its query heads: the row's own block and the local - 1
// before it, the first `init` blocks, then the blocks of the highest scores (ties: the lower block; NaN counts as minus
// infinity) until `top` are chosen or none is left. Blocks that are chosen always count among the `top`.
#pragma once

#include <cstdint>

#include "backend/matrix.h"

namespace minim::backend {

struct SparseAttention {
    int64_t n_head = 0;  // index heads; as many as KV heads
    int64_t dim = 0;     // of an index query and of an index key, one for all heads
    int64_t block = 0;   // positions; a power of two from 16 to 1,024
    int64_t top = 0;     // blocks
    int64_t local = 1;   // blocks
    int64_t init = 0;    // blocks

    bool operator==(const SparseAttention&) const = default;
};

// Index queries and keys of n rows, before normalisation and rotation, which are those of queries and keys, head by head.
struct IndexArgs {
    SparseAttention shape;
    float* q = nullptr;  // [n, n_head * dim], overwritten
    float* k = nullptr;  // [n, dim], overwritten; stored beside K of the layer
    Vector q_norm;       // [dim]
    Vector k_norm;       // [dim]
};

}  // namespace minim::backend
