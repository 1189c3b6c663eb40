// The slots of a batch (row * n_used + choice) by expert, cut into tiles, so that an expert's weights are read once for many
// of them. All of it on the device: the host need not know the choice.
//
// Shape: one block, a thread an expert, each of which reads all choices twice. Bytes moved: the ids. Bound: by instructions:
// about 2 * n_slots a thread, 40 us for 2,048 rows.
#pragma once

#include "cuda/fast/device.h"
#include "cuda/fast/linear_many.h"
#include "cuda/fast/operations.h"

namespace minim::cuda::fast {

struct GroupSlotsKernel {
    static constexpr int k_threads = static_cast<int>(exact::k_most_experts);

    const int32_t* ids;
    int32_t n_slots;
    int32_t n_expert;
    ExpertTiles tiles;

    Grid grid() const { return {.n_blocks = 1, .shared_bytes = 2 * k_threads * 4}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int expert = t.index();
        int32_t count = 0;
        for (int32_t s = 0; s < n_slots; ++s) count += ids[s] == expert ? 1 : 0;
        auto* counts = reinterpret_cast<int32_t*>(t.shared());
        counts[expert] = count;
        t.sync();
        int32_t first = 0;
        int32_t first_tile = 0;
        int32_t n_tiles = 0;
        for (int32_t e = 0; e < n_expert; ++e) {
            if (e == expert) first_tile = n_tiles;
            if (e < expert) first += counts[e];
            n_tiles += (counts[e] + k_tile_inputs - 1) / k_tile_inputs;
        }
        if (expert == 0) *tiles.count = n_tiles;
        if (expert >= n_expert) return;
        for (int32_t done = 0; done < count; done += k_tile_inputs) {
            const int32_t left = count - done;
            tiles.tile[first_tile + done / k_tile_inputs] = {
                expert, first + done, left < k_tile_inputs ? left : k_tile_inputs};
        }
        for (int32_t s = 0; s < n_slots; ++s) {
            if (ids[s] == expert) tiles.slot[first++] = s;
        }
    }
};

}  // namespace minim::cuda::fast
