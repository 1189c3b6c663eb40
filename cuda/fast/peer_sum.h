// SPDX-License-Identifier: Apache-2.0
// Sums of few floats over the ranks of a process, in one kernel on each rank's GPU. The kernels are in peer_sum_kernels.h.
//
// Every rank writes its floats where the others read them: into the memory of their GPUs, or once into pinned host memory that all of
// them reach. Then it sets flags, waits for those of the others, and adds in rank order, so that all ranks have the same bits.
#pragma once

#include <cstdint>

#include "cuda/fast/device.h"

namespace minim::cuda::fast {

inline constexpr int k_max_peers = 16;
inline constexpr int k_peer_threads = 256;
inline constexpr int k_peer_blocks = 16;
inline constexpr int k_peer_block_floats = 4 * k_peer_threads;
inline constexpr int64_t k_max_peer_floats = int64_t{k_peer_blocks} * k_peer_block_floats;

// What one rank has written, where one or all of the others read it. The floats of odd and even turns have places of their own: a
// rank that has come to its next turn knows that the others have begun that turn, and so are done with the one before, but no more.
struct PeerBox {
    FourFloats floats[2][k_peer_blocks * k_peer_threads];
    struct alignas(32) Turn {
        uint32_t value;  // the block's latest turn
    } turn[k_peer_blocks];
};

// A rank's view.
struct Peers {
    int32_t rank;
    int32_t n_ranks;
    int32_t n_to;
    PeerBox* to[k_max_peers];  // [n_to]: where this rank writes
    const PeerBox*
        from[k_max_peers];  // [n_ranks]: where this rank reads what each rank has written; its own: null
    uint32_t* turns;        // [k_peer_blocks], of this rank's blocks so far
    const uint32_t* is_abandoned;  // in host memory; not 0: nobody waits any longer, results are garbage
};

// data [count] = the sum over the ranks; count is at most k_max_peer_floats.
void sum_peers(Stream stream, const Peers& peers, float* data, int64_t count);

// Writes floats that only this rank writes, `seed` + its place, to all of `to`: a test of how they are reached.
void write_peers(Stream stream, const Peers& peers, float seed);

// data [count] = the sum over the ranks of their parts, in rank order; parts [n_ranks, count], but the part of `rank` is in data.
void add_parts(Stream stream, const float* parts, int64_t count, int32_t n_ranks, int32_t rank, float* data);

}  // namespace minim::cuda::fast
