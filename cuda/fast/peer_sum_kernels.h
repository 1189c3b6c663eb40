// SPDX-License-Identifier: Apache-2.0
// Sums over ranks (peer_sum.h).
//
// Shape: a block has 1,024 floats, a thread four. Blocks do not depend on each other; those of all ranks must be on their GPUs at the same time,
// which the 16 of the largest sum are. Bytes moved: 12 KB of a row to each other rank. Bound: latency, two crossings of the bus.
#pragma once

#include "cuda/fast/peer_sum.h"

namespace minim::cuda::fast {

struct SumPeersKernel {
    static constexpr int k_threads = k_peer_threads;
    // The next kernel would take the room of a peer's kernel if both ranks are on one GPU, and this one would wait for ever.
    static constexpr bool k_holds_next = true;
    static constexpr int k_spins =
        64;  // looks at a flag between two looks at is_abandoned, which lies across the bus
    static constexpr int k_nap = 20;  // nanoseconds

    Peers peers;
    float* data;
    int64_t count;

    Grid grid() const { return {.n_blocks = (count + k_peer_block_floats - 1) / k_peer_block_floats}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const uint32_t turn = peers.turns[t.block()] + 1;
        const int64_t first = int64_t{t.block()} * k_peer_block_floats + 4 * t.index();
        const int at = t.block() * k_peer_threads + t.index();
        const FourFloats own = load(first);
        for (int i = 0; i < peers.n_to; ++i) peers.to[i]->floats[turn % 2][at] = own;
        t.sync();
        if (t.index() < peers.n_to) t.set_flag(&peers.to[t.index()]->turn[t.block()].value, turn);
        if (t.index() < peers.n_ranks && t.index() != peers.rank)
            wait_for(t, &peers.from[t.index()]->turn[t.block()].value, turn);
        t.sync();
        t.let_next_begin();
        FourFloats sum = {};
        for (int r = 0; r < peers.n_ranks; ++r) {
            const FourFloats part =
                r == peers.rank ? own : t.load_from_host(&peers.from[r]->floats[turn % 2][at]);
            for (int i = 0; i < 4; ++i) sum.x[i] = r == 0 ? part.x[i] : sum.x[i] + part.x[i];
        }
        store(first, sum);
        if (t.index() == 0) peers.turns[t.block()] = turn;
    }

  private:
    // A peer may be one turn ahead.
    template <class T>
    MINIM_DEVICE void wait_for(T& t, const uint32_t* flag, uint32_t turn) const {
        for (int n = 1; static_cast<int32_t>(t.load_flag(flag) - turn) < 0; ++n) {
            if (n % k_spins == 0 && t.load_flag(peers.is_abandoned) != 0) return;
            t.nap(k_nap);
        }
    }

    MINIM_DEVICE bool is_whole(int64_t first) const {
        return first + 4 <= count && reinterpret_cast<uintptr_t>(data) % sizeof(FourFloats) == 0;
    }
    MINIM_DEVICE FourFloats load(int64_t first) const {
        if (is_whole(first)) return *reinterpret_cast<const FourFloats*>(data + first);
        FourFloats four = {};
        for (int i = 0; i < 4; ++i)
            if (first + i < count) four.x[i] = data[first + i];
        return four;
    }
    MINIM_DEVICE void store(int64_t first, const FourFloats& four) const {
        if (is_whole(first)) {
            *reinterpret_cast<FourFloats*>(data + first) = four;
            return;
        }
        for (int i = 0; i < 4; ++i)
            if (first + i < count) data[first + i] = four.x[i];
    }
};

struct WritePeersKernel {
    static constexpr int k_threads = k_peer_threads;

    Peers peers;
    float seed;

    Grid grid() const { return {.n_blocks = k_peer_blocks}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int at = t.block() * k_peer_threads + t.index();
        const auto place = static_cast<float>(4 * at);
        const FourFloats four = {{seed + place, seed + place + 1, seed + place + 2, seed + place + 3}};
        for (int i = 0; i < peers.n_to; ++i) peers.to[i]->floats[0][at] = four;
    }
};

// Bytes moved: the parts once, and the sum. Bound: memory.
struct AddPartsKernel {
    static constexpr int k_threads = 256;

    const float* parts;
    int64_t count;
    int32_t n_ranks;
    int32_t rank;
    float* data;

    Grid grid() const { return {.n_blocks = (count + k_threads - 1) / k_threads}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t i = int64_t{t.block()} * k_threads + t.index();
        if (i >= count) return;
        float sum = rank == 0 ? data[i] : parts[i];
        for (int64_t r = 1; r < n_ranks; ++r) sum += r == rank ? data[i] : parts[r * count + i];
        data[i] = sum;
    }
};

}  // namespace minim::cuda::fast
