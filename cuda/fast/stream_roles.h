// SPDX-License-Identifier: Apache-2.0
// The roles of warps in the stream kernels (stream_products.h, stream_tiles.h). Each role walks the same list of items: pairs of panels
// with all columns.
//
//   16 consumers   warp w multiplies unit w % 8 of every group of 256 columns whose running number has the parity w / 8, and leaves its
//                  sums of an item in one of two buffers
//   loader         loads weights into the ring (ring.h)
//   storer         adds up the consumers' sums in a fixed order, and writes results; consumers do not wait for it, unless it is more
//                  than an item behind
//
// A result does not depend on the block that computes it or on the rows beside it: partial sums are added up from those of the item's
// first group on.
#pragma once

#include "cuda/fast/linear_few.h"
#include "cuda/fast/ring.h"
#include "cuda/fast/stream_kernels.h"

namespace minim::cuda::fast {

// Where a block's shared memory has what, in bytes.
struct StreamMemory {
    static constexpr int k_max_ring_slots = 24;
    static constexpr int k_min_ring_slots = 4;  // with fewer, loads are not far enough ahead to be worth it
    static constexpr int k_bars_at =
        0;  // full and empty of each slot; full and free of the two buffers of sums
    static constexpr int k_norm_at = 512;  // sums of the norm, a float for each consumer warp
    static constexpr int k_sums_at = 640;
    static_assert((2 * k_max_ring_slots + 4) * 8 <= k_norm_at);

    int32_t places_at;
    int32_t table_at;
    int32_t inputs_at;
    int32_t slots_at;
    int32_t slot_bytes;
    int32_t slot_groups;  // that a slot has room for
    int32_t n_ring_slots;
    int32_t bytes;

    bool fits() const { return n_ring_slots >= k_min_ring_slots; }
};

template <class P, int n_tokens>
struct StreamRoles {
    using Block = typename P::Block;
    using Dots = typename ForDots<P>::Panel;
    using DotBlock = PanelBlock<typename ForDots<P>::L>;
    static constexpr int k_consumers = 16;
    static constexpr int k_consumer_threads = 32 * k_consumers;
    static constexpr int k_threads = k_consumer_threads + 64;
    static constexpr int k_rows = static_cast<int>(k_panel_rows);
    static constexpr int k_header_bytes = Block::row_header_bytes * k_rows;
    static constexpr int k_group_bytes = k_stage_panel_bytes<Block>;
    static constexpr int k_block_units = Block::block_elems / 32;
    static constexpr int k_buffer_floats = k_consumers * n_tokens * 32;

    // Returns the layout for places and inputs of some bytes, and slots with `input_bytes` of inputs for each group.
    static StreamMemory memory_for(int64_t place_bytes, int64_t all_input_bytes, int input_bytes,
                                   int64_t shared_bytes) {
        StreamMemory memory = {};
        int64_t at = StreamMemory::k_sums_at + 2 * k_buffer_floats * 4;
        const auto take = [&](int64_t bytes) {
            const int64_t begin = at;
            at += (bytes + 127) / 128 * 128;
            return static_cast<int32_t>(begin);
        };
        memory.places_at = take(place_bytes);
        memory.table_at = take(k_table_bytes<P>);
        memory.inputs_at = take(all_input_bytes);
        memory.slots_at = static_cast<int32_t>(at);
        // Slots of 18 KB, or of half of that where a block has 99 KB: as many whole groups as fit, and at least one.
        const int wanted = shared_bytes >= k_large_shared_bytes ? 18432 : 9216;
        const int group_bytes = 2 * k_group_bytes + input_bytes;
        memory.slot_groups = wanted < group_bytes ? 1 : wanted / group_bytes;
        memory.slot_bytes = ring_slot_bytes(memory.slot_groups * group_bytes);
        const int64_t fitting = at < shared_bytes ? (shared_bytes - at) / memory.slot_bytes : 0;
        memory.n_ring_slots = static_cast<int32_t>(
            fitting < StreamMemory::k_max_ring_slots ? fitting : StreamMemory::k_max_ring_slots);
        memory.bytes = static_cast<int32_t>(at) + memory.n_ring_slots * memory.slot_bytes;
        return memory;
    }

    template <class T>
    MINIM_DEVICE static Ring ring_of(T& t, const StreamMemory& memory) {
        auto* bars = reinterpret_cast<Bar*>(t.shared() + StreamMemory::k_bars_at);
        return {t.shared() + memory.slots_at, bars, bars + memory.n_ring_slots, memory.n_ring_slots,
                memory.slot_bytes};
    }
    // Barriers of the two buffers of sums.
    template <class T>
    MINIM_DEVICE static Bar* sums_full(T& t, const StreamMemory& memory) {
        return reinterpret_cast<Bar*>(t.shared() + StreamMemory::k_bars_at) + 2 * memory.n_ring_slots;
    }
    template <class T>
    MINIM_DEVICE static Bar* sums_free(T& t, const StreamMemory& memory) {
        return sums_full(t, memory) + 2;
    }
    template <class T>
    MINIM_DEVICE static float* buffer_of(T& t, int item) {
        return reinterpret_cast<float*>(t.shared() + StreamMemory::k_sums_at) + item % 2 * k_buffer_floats;
    }

    // All threads of the block call it before a sync().
    template <class T>
    MINIM_DEVICE static void start_barriers(T& t, const StreamMemory& memory) {
        ring_of(t, memory).start(t, k_consumers);
        if (t.index() >= 2) return;
        t.bar_start(sums_full(t, memory) + t.index(), k_consumers);
        t.bar_start(sums_free(t, memory) + t.index(), 1);
    }

    // A thread of the consumers, through all items.
    struct Consumer {
        int warp;
        int lane;
        RingPosition at = {};
        int n_before = 0;  // groups of earlier items and slots
        int n_done = 0;    // items

        MINIM_DEVICE int unit() const { return warp % k_stage_units; }
        MINIM_DEVICE int half() const { return warp / k_stage_units; }
    };

    // Adds the products of the warp's unit of a slot's groups. input: the unit of the slot's first group; `row` blocks later is that of
    // the next of n_inputs inputs.
    template <int block_unit, class T>
    MINIM_DEVICE static void multiply_slot(T& t, const StreamMemory& memory, const Consumer& own,
                                           const std::byte* slot, int count, const Q8Block* input, int row,
                                           int n_inputs, float (&sum)[n_tokens]) {
        const int panel = own.lane / k_rows;
        const DotBlock header = {slot + panel * k_ring_header_bytes, own.lane % k_rows};
        const std::byte* units = slot + k_ring_first_panel + panel * second_panel_at(count * k_group_bytes) +
                                 own.unit() / k_block_units * Block::block_bytes * k_rows;
        MINIM_DEVICE_LOOP
        for (int g = (own.half() + own.n_before) % 2; g < count; g += 2) {
            const DotBlock block = {units + g * k_group_bytes, own.lane % k_rows};
            panel::Unit<typename ForDots<P>::L> weights;
            unpack_unit<Dots, block_unit>(header, block, t.shared() + memory.table_at, weights);
            for (int i = 0; i < n_tokens; ++i) {
                // Beyond the last input the first one stands for it.
                const Q8Block* of_row = input + g * k_stage_units;
                if (n_tokens > 1 && i < n_inputs) of_row += i * row;
                const InputUnit one = load_input(of_row);
                if constexpr (k_is_by_tables<P>) {
                    sum[i] = add_unit_by_tables<typename Dots::Kind, Block, block_unit>(block, weights, one,
                                                                                        sum[i]);
                } else {
                    sum[i] = add_unit<typename Dots::Kind>(weights, one, sum[i]);
                }
            }
        }
    }

    // Hands the sums of an item to the storer.
    template <class T>
    MINIM_DEVICE static void put_sums(T& t, const StreamMemory& memory, Consumer& own,
                                      const float (&sum)[n_tokens]) {
        const int buffer = own.n_done % 2;
        t.bar_wait(sums_free(t, memory) + buffer, static_cast<uint32_t>(own.n_done / 2 + 1) % 2);
        float* sums = buffer_of(t, own.n_done) + own.warp * n_tokens * 32 + own.lane;
        for (int i = 0; i < n_tokens; ++i) sums[32 * i] = sum[i];
        t.sync_warp();
        if (own.lane == 0) t.bar_arrive(sums_full(t, memory) + buffer);
        ++own.n_done;
    }

    // The storer: waits for the sums of item n_done, and adds them up, of the two halves of the warps first those of the half that has
    // the item's first group.
    template <class T>
    MINIM_DEVICE static void add_up(T& t, const StreamMemory& memory, int& n_done, int n_groups,
                                    float (&total)[n_tokens]) {
        const int buffer = n_done % 2;
        t.bar_wait(sums_full(t, memory) + buffer, static_cast<uint32_t>(n_done / 2) % 2);
        const int first = n_done * n_groups % 2;
        const float* sums = buffer_of(t, n_done) + t.index() % 32;
        for (float& each : total) each = 0.0F;
        for (int half = 0; half < 2; ++half) {
            const float* of_half = sums + (half == first ? 0 : k_buffer_floats / 2);
            for (int unit = 0; unit < k_stage_units; ++unit)
                for (int i = 0; i < n_tokens; ++i) total[i] += of_half[(unit * n_tokens + i) * 32];
        }
        t.sync_warp();
        if (t.index() % 32 == 0) t.bar_arrive(sums_free(t, memory) + buffer);
        ++n_done;
    }

    // 16 rows of gate are in the lower lanes, those of up in the others. The results of the first item of two stay in the lower lanes,
    // those of the second one in the others.
    template <class T>
    MINIM_DEVICE static void activate(T& t, const backend::Activation& activation, int k, float own,
                                      float& kept) {
        const float other = t.from_lane_xor(own, k_rows);
        if (t.index() % 32 / k_rows == k)
            kept = activate_pair(activation, k == 0 ? own : other, k == 0 ? other : own);
    }
};

}  // namespace minim::cuda::fast
