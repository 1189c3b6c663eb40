// SPDX-License-Identifier: Apache-2.0
// Collects the pages of the blocks that rows have chosen (ChosenPages), so that the kernels of attention read them as a context.
//
// Shape: a block of threads for each row and KV head, a thread for each page. Bytes moved: 16 for each page.
#pragma once

#include <cstdint>

#include "cuda/fast/attend_page.h"
#include "cuda/fast/attention.h"
#include "cuda/fast/device.h"

namespace minim::cuda::fast {

struct GatherPagesKernel {
    static constexpr int k_threads = 64;

    Cache cache;
    exact::Index index;
    ChosenPages to;
    int64_t n;  // rows

    Grid grid() const { return {n, cache.n_head_kv, 0}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t row = t.block();
        const int64_t head = t.block_y();
        const int64_t block = index.shape.block;
        const int64_t top = index.shape.top;
        const int64_t position = cache.position[row];
        const bool chooses = position / block >= top;
        const int64_t chosen_position = chooses ? (top - 1) * block + position % block : position;
        const int64_t first = row * cache.n_head_kv * to.pages_a_head;
        if (head == 0 && t.index() == 0) {
            to.tiles[2 * row] = static_cast<int32_t>(row);
            to.tiles[2 * row + 1] = 1;
            to.position[row] = static_cast<int32_t>(chosen_position);
            to.first_page[row] = first;
        }
        const int64_t pages_a_block = block / k_page_tokens;
        const int32_t* chosen = index.chosen + (row * index.shape.n_head + head) * top;
        const uint64_t* pages = cache.pages + cache.first_page[row];
        for (int64_t i = t.index(); i <= chosen_position / k_page_tokens; i += k_threads) {
            const int64_t from = chooses ? chosen[i / pages_a_block] : i / pages_a_block;
            to.pages[first + head * to.pages_a_head + i] = pages[from * pages_a_block + i % pages_a_block];
        }
    }
};

}  // namespace minim::cuda::fast
