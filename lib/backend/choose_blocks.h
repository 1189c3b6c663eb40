// SPDX-License-Identifier: Apache-2.0
// Chooses the blocks of a row with block-sparse attention from their scores. The CPU's and the GPU's attend() share this code.
#pragma once

#include <cstdint>

#include "backend/sparse_attention.h"
#include "base/platform.h"

namespace minim::backend {

// Chooses shape.top of n_blocks blocks, of which there are more, in ascending order: the last `local` ones, the first `init` ones, then
// those of the highest scores; of equal scores the lower block. Scores are not NaN.
MINIM_HOST_DEVICE void choose_blocks(const SparseAttention& shape, const float* scores, int64_t n_blocks,
                                     int32_t* chosen) {
    const int64_t first_local = n_blocks > shape.local ? n_blocks - shape.local : 0;
    const int64_t end_init = shape.init < first_local ? shape.init : first_local;
    int64_t n = 0;
    for (int64_t b = n_blocks - 1; b >= first_local && n < shape.top; --b)
        chosen[n++] = static_cast<int32_t>(b);
    for (int64_t b = 0; b < end_init && n < shape.top; ++b) chosen[n++] = static_cast<int32_t>(b);
    // The best so far, in descending order of their scores.
    const int64_t n_forced = n;
    for (int64_t b = end_init; b < first_local; ++b) {
        if (n == shape.top && (n == n_forced || !(scores[b] > scores[chosen[n - 1]]))) continue;
        int64_t place = n < shape.top ? n++ : n - 1;
        for (; place > n_forced && scores[b] > scores[chosen[place - 1]]; --place)
            chosen[place] = chosen[place - 1];
        chosen[place] = static_cast<int32_t>(b);
    }
    for (int64_t i = 1; i < n; ++i) {
        const int32_t block = chosen[i];
        int64_t place = i;
        for (; place > 0 && chosen[place - 1] > block; --place) chosen[place] = chosen[place - 1];
        chosen[place] = block;
    }
}

}  // namespace minim::backend
