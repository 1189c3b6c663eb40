// SPDX-License-Identifier: Apache-2.0
// Groups the slots of a batch (row * n_used + choice) whose expert is on this device by expert, and cuts them into
// tiles of tiles.size slots, so that an expert's weights are read once for many slots. It runs on the device, so the host need not know
// the chosen experts.
//
// Shape: one block. Its threads read the choices twice, to count and to place them; in between, each thread handles
// an expert. The order of an expert's slots is unspecified; no result depends on it. Bytes moved: the ids twice.
// Bound: latency.
#pragma once

#include "cuda/fast/device.h"
#include "cuda/fast/operations.h"

namespace minim::cuda::fast {

struct GroupSlotsKernel {
    static constexpr int k_threads = static_cast<int>(exact::k_max_experts);

    const int32_t* ids;
    const backend::ExpertPlace* places;
    int32_t n_slots;
    int32_t n_expert;
    ExpertTiles tiles;

    Grid grid() const { return {.n_blocks = 1, .shared_bytes = 2 * k_threads * 4}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int expert = t.index();
        auto* counts = reinterpret_cast<int32_t*>(t.shared());
        int32_t* next = counts + k_threads;  // next place in tiles.slot for a slot of the expert
        counts[expert] = 0;
        t.sync();
        for (int32_t s = t.index(); s < n_slots; s += k_threads) t.add_to(&counts[ids[s]], 1);
        t.sync();
        if (expert < n_expert && places[expert].gate == nullptr) counts[expert] = 0;
        t.sync();
        const int32_t count = counts[expert];
        int32_t first = 0;
        int32_t first_tile = 0;
        int32_t n_tiles = 0;
        for (int32_t e = 0; e < n_expert; ++e) {
            if (e == expert) first_tile = n_tiles;
            if (e < expert) first += counts[e];
            n_tiles += (counts[e] + tiles.size - 1) / tiles.size;
        }
        if (expert == 0) *tiles.count = n_tiles;
        next[expert] = first;
        for (int32_t done = 0; done < count; done += tiles.size) {
            const int32_t left = count - done;
            tiles.tile[first_tile + done / tiles.size] = {expert, first + done,
                                                          left < tiles.size ? left : tiles.size};
        }
        t.sync();
        for (int32_t s = t.index(); s < n_slots; s += k_threads)
            if (counts[ids[s]] != 0) tiles.slot[t.add_to(&next[ids[s]], 1)] = s;
    }
};

}  // namespace minim::cuda::fast
