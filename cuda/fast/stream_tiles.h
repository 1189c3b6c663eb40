// SPDX-License-Identifier: Apache-2.0
// Packed experts of more rows by the stream kernel: slots of one expert are multiplied together, up to four at a time (group_slots.h),
// so that weights are decoded once for them.
//
// Shape: that of stream_products.h. A run is a tile and 32 rows of results: two items of gate and up, or one of down. Inputs come with
// the weights, in the same slots of the ring: a block's runs have different tiles. The loader's lanes look up the tiles, experts and
// slots of the next 32 runs together, since one after the other takes three times the latency of memory for each run. Layout: a slot of the
// ring has headers and panels as in ring.h, then the groups of each input. Bytes moved: every weight once for a tile; of each input 1.5
// bytes for a column and 32 rows of results, from the second-level cache.
#pragma once

#include "cuda/fast/stream_roles.h"

namespace minim::cuda::fast {

// What a run needs, kept in shared memory for 64 runs of the block.
struct StreamTile {
    static constexpr int k_ahead = 32;  // runs that are looked up together
    static constexpr int k_count = 2 * k_ahead;
    static constexpr int k_slots = 4;

    const std::byte* panel[2][2];  // of each item
    float scale[2];                // of the lower and the upper 16 lanes of an item
    int32_t count;
    int32_t first_row;
    int32_t slot[k_slots];
};

template <class P>
struct StreamTilesKernel {
    static constexpr int k_tokens = StreamTile::k_slots;
    using Roles = StreamRoles<P, k_tokens>;
    static constexpr int k_threads = Roles::k_threads;
    static constexpr bool k_starts_early = true;
    static constexpr bool k_runs_together = true;
    static constexpr int k_shared_bytes = k_large_shared_bytes;
    static constexpr int k_input_bytes = k_stage_units * static_cast<int>(sizeof(Q8Block));  // of a group
    // An entry of the table is written again 64 runs later, when the loader begins 32 runs at once. Roles are behind the loader by no
    // more runs than the ring has slots, and four whose sums are added up or wait for that.
    static_assert(StreamMemory::k_max_ring_slots + 4 < StreamTile::k_ahead);

    StreamCall call;
    StreamMemory memory;
    int32_t n_blocks;

    static StreamTilesKernel make(const StreamCall& call, const StreamDevice& device) {
        StreamTilesKernel kernel = {call,
                                    Roles::memory_for(StreamTile::k_count * int64_t{sizeof(StreamTile)}, 0,
                                                      k_tokens * k_input_bytes, device.shared_bytes),
                                    0};
        const int64_t most = call.tiles.most * kernel.runs_of_rows();
        kernel.n_blocks = most < device.n_processors ? static_cast<int32_t>(most) : device.n_processors;
        return kernel;
    }
    Grid grid() const { return {.n_blocks = n_blocks, .shared_bytes = memory.bytes}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        if constexpr (T::k_has_bulk_copies) run(t);
    }

  private:
    MINIM_HOST_DEVICE bool activates() const { return call.kind == StreamKind::activate_tiles; }
    MINIM_HOST_DEVICE int n_items() const { return activates() ? 2 : 1; }
    MINIM_HOST_DEVICE int runs_of_rows() const {
        return static_cast<int>(activates() ? call.experts.rows / 32 : panel_pairs(call.experts.rows));
    }
    MINIM_DEVICE int n_groups() const { return static_cast<int>(call.cols) / k_stage_cols; }
    // Returns the number of runs of all blocks.
    MINIM_DEVICE int n_runs() const { return *call.tiles.count * runs_of_rows(); }
    // Entry of the block's run number `index`.
    template <class T>
    MINIM_DEVICE StreamTile& tile_at(T& t, int index) const {
        return reinterpret_cast<StreamTile*>(t.shared() + memory.places_at)[index % StreamTile::k_count];
    }

    template <class T>
    MINIM_DEVICE void run(T& t) const {
        t.wait_for_inputs();
        Roles::start_barriers(t, memory);
        copy_table<P>(t, k_threads, t.shared() + memory.table_at);
        t.sync();
        const int n_all = n_runs();
        const int n_own = n_all > t.block() ? (n_all - t.block() + n_blocks - 1) / n_blocks : 0;
        if (t.index() < Roles::k_consumer_threads) {
            with_unit<P>(t.index() / 32 % k_stage_units % Roles::k_block_units,
                         [&](auto block_unit) { multiply_items<block_unit>(t, n_own); });
        } else if (t.index() < Roles::k_consumer_threads + 32) {
            load_items(t, n_own);
        } else {
            store_items(t, n_own);
        }
    }

    // Looks up run number `index` of the block.
    template <class T>
    MINIM_DEVICE void look_up(T& t, int index) const {
        const int run = t.block() + index * n_blocks;
        const int of_tile = run % runs_of_rows();
        const ExpertTile tile = call.tiles.tile[run / runs_of_rows()];
        StreamTile& to = tile_at(t, index);
        to.count = tile.count;
        to.first_row = 32 * of_tile;
        for (int i = 0; i < tile.count; ++i) to.slot[i] = call.tiles.slot[tile.first + i];
        const exact::ExpertRows rows = rows_of(call.experts, tile.expert);
        const int64_t panel_bytes = k_panel_rows * call.row_bytes;
        const auto* first = reinterpret_cast<const std::byte*>(rows.data) + 2 * of_tile * panel_bytes;
        to.scale[0] = to.scale[1] = rows.scale;
        if (activates()) {
            const exact::ExpertRows up_rows = rows_of(call.up, tile.expert);
            const auto* up = reinterpret_cast<const std::byte*>(up_rows.data) + 2 * of_tile * panel_bytes;
            to.scale[1] = up_rows.scale;
            for (int k = 0; k < 2; ++k) {
                to.panel[k][0] = first + k * panel_bytes;
                to.panel[k][1] = up + k * panel_bytes;
            }
        } else {
            to.panel[0][0] = first;
            to.panel[0][1] = first + (call.experts.rows - to.first_row > k_panel_rows ? panel_bytes : 0);
        }
    }

    // All lanes of the loader call it.
    template <class T>
    MINIM_DEVICE void load_items(T& t, int n_own) const {
        const Ring ring = Roles::ring_of(t, memory);
        const RingShares shares = ring_shares(n_groups(), memory.slot_groups);
        const int lane = t.index() % 32;
        RingPosition at;
        MINIM_DEVICE_LOOP
        for (int first = 0; first < n_own; first += StreamTile::k_ahead) {
            if (first + lane < n_own) look_up(t, first + lane);
            t.sync_warp();
            if (lane == 0) {
                const int end = first + StreamTile::k_ahead < n_own ? first + StreamTile::k_ahead : n_own;
                MINIM_DEVICE_LOOP
                for (int index = first; index < end; ++index)
                    for (int k = 0; k < n_items(); ++k) load_item(t, ring, shares, tile_at(t, index), k, at);
            }
            t.sync_warp();
        }
    }
    template <class T>
    MINIM_DEVICE void load_item(T& t, const Ring& ring, const RingShares& shares, const StreamTile& tile,
                                int k, RingPosition& at) const {
        MINIM_DEVICE_LOOP
        for (int s = 0; s < shares.n_slots; ++s) {
            const int count = shares.count_of(s);
            const int bytes = count * Roles::k_group_bytes;
            const int first = Roles::k_header_bytes + shares.first_of(s) * Roles::k_group_bytes;
            const PanelPart part[2] = {{tile.panel[k][0], tile.panel[k][0] + first},
                                       {tile.panel[k][1], tile.panel[k][1] + first}};
            const int of_input = count * k_input_bytes;
            ring.template load<Roles::k_header_bytes>(t, at, part, bytes, tile.count * of_input);
            std::byte* to = ring.place(at) + inputs_at(bytes);
            MINIM_DEVICE_LOOP
            for (int i = 0; i < tile.count; ++i) {
                const Q8Block* from = call.input.blocks +
                                      tile.slot[i] / call.slots_an_input * q8_blocks(call.cols) +
                                      shares.first_of(s) * k_stage_units;
                t.copy_bulk(to + i * of_input, from, of_input, ring.full + at.slot);
            }
            at.next(ring.n_slots);
        }
    }
    // Where the inputs lie in a slot with `bytes` of each panel.
    MINIM_DEVICE static int inputs_at(int bytes) {
        return k_ring_first_panel + second_panel_at(bytes) + bytes;
    }

    template <int block_unit, class T>
    MINIM_DEVICE void multiply_items(T& t, int n_own) const {
        typename Roles::Consumer own = {t.index() / 32, t.index() % 32};
        const Ring ring = Roles::ring_of(t, memory);
        const RingShares shares = ring_shares(n_groups(), memory.slot_groups);
        MINIM_DEVICE_LOOP
        for (int item = 0; item < n_own * n_items(); ++item) {
            float sum[k_tokens];
            for (float& each : sum) each = 0.0F;
            MINIM_DEVICE_LOOP
            for (int s = 0; s < shares.n_slots; ++s) {
                const std::byte* slot = ring.wait(t, own.at);
                const int count = shares.count_of(s);
                const auto* input =
                    reinterpret_cast<const Q8Block*>(slot + inputs_at(count * Roles::k_group_bytes)) +
                    own.unit();
                Roles::template multiply_slot<block_unit>(t, memory, own, slot, count, input,
                                                          count * k_stage_units,
                                                          tile_at(t, item / n_items()).count, sum);
                ring.release(t, own.at);
                own.at.next(ring.n_slots);
                own.n_before += count;
            }
            Roles::put_sums(t, memory, own, sum);
        }
    }

    template <class T>
    MINIM_DEVICE void store_items(T& t, int n_own) const {
        const int lane = t.index() % 32;
        int n_done = 0;
        float total[k_tokens];
        float kept[k_tokens] = {};
        MINIM_DEVICE_LOOP
        for (int item = 0; item < n_own * n_items(); ++item) {
            Roles::add_up(t, memory, n_done, n_groups(), total);
            const StreamTile& tile = tile_at(t, item / n_items());
            const float scale = tile.scale[lane / Roles::k_rows];
            const int64_t rows = call.experts.rows;
            for (int i = 0; i < k_tokens; ++i) {
                if (i >= tile.count) continue;
                const float own = total[i] * scale;
                if (!activates()) {
                    const int64_t row = tile.first_row + lane;
                    if (row < rows / k_panel_rows * k_panel_rows)
                        call.output[tile.slot[i] * rows + row] = own;
                    continue;
                }
                Roles::activate(t, call.experts.activation, item % 2, own, kept[i]);
                if (item % 2 == 1)
                    quantize_lanes(t, kept[i],
                                   call.activated + tile.slot[i] * q8_blocks(rows) + tile.first_row / 32);
            }
        }
    }
};

}  // namespace minim::cuda::fast
