// SPDX-License-Identifier: Apache-2.0
// A ring of slots in shared memory: one thread loads weights into it by bulk copies, consumer warps read them. Nobody waits at a barrier
// of the block: each slot has two barriers of its own (mbarriers).
//
//   full    the slot's bytes have arrived
//   empty   each consumer warp has read the slot
//
// A slot holds whole groups (256 columns) of a pair of panels, as many as fit, behind the panels' row headers: each slot of an item has
// the headers, so that no header has to outlive its slot. The second panel begins at an odd multiple of 64 bytes: its words then lie in
// the other half of the banks. An item's groups are divided evenly among its slots.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"
#include "cuda/fast/device.h"

namespace minim::cuda::fast {

inline constexpr int k_ring_header_bytes = 64;  // room for those of a panel
inline constexpr int k_ring_first_panel = 2 * k_ring_header_bytes;

// Returns where the second panel of a slot begins behind `bytes` of the first one.
MINIM_HOST_DEVICE constexpr int second_panel_at(int bytes) {
    return (bytes + 63) / 128 * 128 + 64;
}
// Returns the bytes of a slot with `bytes` of both panels, and what follows them, a multiple of 128.
MINIM_HOST_DEVICE constexpr int ring_slot_bytes(int bytes) {
    return k_ring_first_panel + (bytes + 127) / 128 * 128 + 128;
}

// How the groups of an item are divided into slots: the first ones have one group more, if they do not divide evenly.
struct RingShares {
    int n_slots;
    int n_groups;

    MINIM_HOST_DEVICE constexpr int first_of(int slot) const {
        const int more = n_groups % n_slots;
        return n_groups / n_slots * slot + (slot < more ? slot : more);
    }
    MINIM_HOST_DEVICE constexpr int count_of(int slot) const { return first_of(slot + 1) - first_of(slot); }
};
// most: groups that a slot has room for
MINIM_HOST_DEVICE constexpr RingShares ring_shares(int n_groups, int most) {
    return {(n_groups + most - 1) / most, n_groups};
}

// Where a warp is: it takes the slots in turn. Loader and consumers begin at the same place.
struct RingPosition {
    int slot = 0;
    uint32_t round = 0;  // how often it has been through all slots

    MINIM_HOST_DEVICE constexpr void next(int n_slots) {
        if (++slot < n_slots) return;
        slot = 0;
        ++round;
    }
};

// What a slot gets of a panel.
struct PanelPart {
    const std::byte* header;  // not read if there are no headers
    const std::byte* units;
};

struct Ring {
    std::byte* slots;  // [n_slots * slot_bytes], aligned to 128 bytes
    Bar* full;         // [n_slots]
    Bar* empty;        // [n_slots]
    int n_slots;
    int slot_bytes;

    MINIM_DEVICE std::byte* place(const RingPosition& at) const { return slots + at.slot * slot_bytes; }

    // All threads of the block, of which there are as many as slots or more, call it before a sync(): one thread would wait for a fence
    // behind each barrier.
    template <class T>
    MINIM_DEVICE void start(T& t, int n_consumers) const {
        const int i = t.index();
        if (i >= n_slots) return;
        t.bar_start(full + i, 1);
        t.bar_start(empty + i, n_consumers);
        t.bar_frees(empty + i, slots + i * slot_bytes, slot_bytes);
    }

    // Loads `bytes` of the units of each of two panels, once the slot is empty, and `header_bytes` of row headers; both multiples of 16.
    // more_bytes: what the caller copies to the slot afterwards. One thread, always the same.
    template <int header_bytes, class T>
    MINIM_DEVICE void load(T& t, const RingPosition& at, const PanelPart (&part)[2], int bytes,
                           int more_bytes = 0) const {
        Bar* bar = full + at.slot;
        std::byte* to = place(at);
        t.bar_wait(empty + at.slot, (at.round + 1) % 2);
        t.bar_expect(bar, 2 * (header_bytes + bytes) + more_bytes);
        if constexpr (header_bytes > 0) {
            static_assert(header_bytes <= k_ring_header_bytes);
            for (int p = 0; p < 2; ++p)
                t.copy_bulk(to + p * k_ring_header_bytes, part[p].header, header_bytes, bar);
        }
        t.copy_bulk(to + k_ring_first_panel, part[0].units, bytes, bar);
        t.copy_bulk(to + k_ring_first_panel + second_panel_at(bytes), part[1].units, bytes, bar);
    }

    // Returns the slot once its bytes are there; all threads of a consumer warp.
    template <class T>
    MINIM_DEVICE const std::byte* wait(T& t, const RingPosition& at) const {
        t.bar_wait(full + at.slot, at.round % 2);
        return place(at);
    }
    // The warp has loaded what it needs of the slot.
    template <class T>
    MINIM_DEVICE void release(T& t, const RingPosition& at) const {
        t.sync_warp();
        if (t.index() % 32 == 0) t.bar_arrive(empty + at.slot);
    }
};

}  // namespace minim::cuda::fast
