// SPDX-License-Identifier: Apache-2.0
// Top-k of rows of logits (`backend/top_k.h`), so that a row of 200 064 need not be copied to the host.
//
// Shape: a block takes 8192 logits of a row and keeps its best 256, sorted; then one block for each row joins these
// lists. Layout: a logit and its id form one 64-bit number, larger is better; equal logits differ in their ids, so
// that no result depends on the order of the threads. Bytes moved: every logit once, 2 KB for each block's best and
// as many to read them; 8 bytes if only the best of a row is requested. Bound: for a few rows latency, some 80 stages
// of sorting in shared memory; for many the speed of shared memory. The exact total uses one block for each row,
// which adds 8 numbers at a time. Bound: the latency of as many additions in sequence as an eighth of the row has numbers.
#pragma once

#include <cmath>
#include <cstdint>

#include "backend/top_k.h"
#include "base/half.h"
#include "cuda/fast/device.h"
#include "cuda/fast/top_k.h"
#include "sampling/portable_math.h"

namespace minim::cuda::fast {

inline constexpr int k_top_k_threads = 1024;
inline constexpr int k_top_k_lists = k_top_k_piece / k_list;  // that a block joins
inline constexpr int k_top_k_shared_bytes = k_top_k_piece * 8 + 32 * 8;

// Returns a key that is larger for better candidates: the logit's bits in numerical order, then the id (lower is
// better). 0: no candidate.
MINIM_DEVICE uint64_t key_of(float logit, int64_t id) {
    if (!(logit > -INFINITY)) return 0;
    const uint32_t bits = float_to_bits(logit == 0.0F ? 0.0F : logit);
    const uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
    return static_cast<uint64_t>(ordered) << 32 | (0xFFFFFFFFU - static_cast<uint32_t>(id));
}

MINIM_DEVICE Candidate candidate_of(uint64_t key) {
    const auto ordered = static_cast<uint32_t>(key >> 32);
    const uint32_t bits = (ordered >> 31) != 0 ? ordered & 0x7FFFFFFFU : ~ordered;
    return {bits_to_float(bits), static_cast<int32_t>(0xFFFFFFFFU - static_cast<uint32_t>(key))};
}

// Makes the writes of a stage of sorting visible to the next. If both distances are at most 32, one warp does both.
template <class T>
MINIM_DEVICE void sync_stage(T& t, int stride, int next_stride) {
    if (stride > 32 || next_stride > 32) {
        t.sync();
    } else {
        t.sync_warp();
    }
}

// Orders two keys at a distance, the larger first or last, in all lists that begin `list_stride` keys apart. If the distance is
// at most 32, the 32 pairs of a warp lie in 64 neighbouring keys.
template <class T>
MINIM_DEVICE void order_pairs(T& t, uint64_t* keys, int n_lists, int list_stride, int stride, int size) {
    for (int p = t.index(); p < n_lists * (k_list / 2); p += k_top_k_threads) {
        const int pair = p % (k_list / 2);
        const int i = 2 * pair - (pair & (stride - 1));
        uint64_t* low = keys + p / (k_list / 2) * list_stride + i;
        const bool wants_larger_first = (i & size) == 0;
        const uint64_t a = low[0];
        const uint64_t b = low[stride];
        if ((a < b) == wants_larger_first) {
            low[0] = b;
            low[stride] = a;
        }
    }
}

// Sorts each list, the best key first (Batcher's bitonic sort). Begins and ends with a barrier.
template <class T>
MINIM_DEVICE void sort_lists(T& t, uint64_t* keys, int n_lists) {
    t.sync();
    for (int size = 2; size <= k_list; size *= 2) {
        for (int stride = size / 2; stride > 0; stride /= 2) {
            order_pairs(t, keys, n_lists, k_list, stride, size == k_list ? 0 : size);
            sync_stage(t, stride, stride > 1 ? stride / 2 : size == k_list ? k_list : size);
        }
    }
}

// Merges sorted lists pairwise until the first list has the best keys of all. To merge a and b, of n keys each, a[i] becomes the
// larger of a[i] and b[n - 1 - i]: the n best of both, as a bitonic sequence. Begins and ends with a barrier.
template <class T>
MINIM_DEVICE void join_lists(T& t, uint64_t* keys, int n_lists) {
    t.sync();
    for (int distance = 1; distance < n_lists; distance *= 2) {
        const int n_joined = (n_lists - distance + 2 * distance - 1) / (2 * distance);
        for (int e = t.index(); e < n_joined * k_list; e += k_top_k_threads) {
            uint64_t* list = keys + e / k_list * (2 * distance * k_list);
            const int i = e % k_list;
            const uint64_t other = list[distance * k_list + k_list - 1 - i];
            if (list[i] < other) list[i] = other;
        }
        t.sync();
        for (int stride = k_list / 2; stride > 0; stride /= 2) {
            order_pairs(t, keys, n_joined, 2 * distance * k_list, stride, 0);
            sync_stage(t, stride, stride > 1 ? stride / 2 : k_list);
        }
    }
}

// Returns the sum or the best of all threads of a block to each of them; always added in the same order. Uses 32 places
// of 8 bytes.
template <class T, typename Number, typename Join>
MINIM_DEVICE Number reduce_block(T& t, Number own, std::byte* places, const Join& join) {
    auto* of_warps = reinterpret_cast<Number*>(places);
    for (int mask = 16; mask > 0; mask /= 2) own = join(own, t.from_lane_xor(own, mask));
    t.sync();
    if (t.index() % 32 == 0) of_warps[t.index() / 32] = own;
    t.sync();
    Number all = of_warps[t.index() % 32];
    for (int mask = 16; mask > 0; mask /= 2) all = join(all, t.from_lane_xor(all, mask));
    return all;
}

MINIM_DEVICE double weight_of(float logit, float highest, double inverse_temperature) {
    return std::exp((static_cast<double>(logit) - static_cast<double>(highest)) * inverse_temperature);
}

// Finds the best keys of every piece of every row, the number of NaN and the sum of weights.
struct TopKPieceKernel {
    static constexpr int k_threads = k_top_k_threads;
    static constexpr int k_own = k_top_k_piece / k_threads;

    const float* logits;
    int64_t n;
    int64_t n_vocab;
    const backend::TopKRow* rows;
    TopKWork work;  // keys: only the first of each piece if only that is needed

    Grid grid() const { return {top_k_pieces(n_vocab), n, k_top_k_shared_bytes}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const backend::TopKRow& row = rows[t.block_y()];
        if (row.n_candidates == 0) return;
        auto* shared = reinterpret_cast<uint64_t*>(t.shared());
        std::byte* places = t.shared() + k_top_k_piece * 8;
        const int64_t first = int64_t{t.block()} * k_top_k_piece + t.index();
        const float* from = logits + t.block_y() * n_vocab;
        const bool sorts = row.n_candidates > 1;
        float own[k_own];
        uint64_t best = 0;
        int32_t n_nan = 0;
        for (int k = 0; k < k_own; ++k) {
            const int64_t id = first + k * k_threads;
            own[k] = id < n_vocab ? from[id] : -INFINITY;
            const uint64_t key = key_of(own[k], id);
            if (sorts) shared[k * k_threads + t.index()] = key;
            best = key > best ? key : best;
            n_nan += own[k] != own[k] ? 1 : 0;
        }
        const auto larger = [](auto a, auto b) { return a > b ? a : b; };
        const auto sum = [](auto a, auto b) { return a + b; };
        best = reduce_block(t, best, places, larger);
        n_nan = reduce_block(t, n_nan, places, sum);
        double total = 0.0;
        if (row.inverse_temperature != 0.0) {
            const float highest = candidate_of(best).logit;
            for (int k = 0; k < k_own; ++k)
                if (best != 0 && own[k] > -INFINITY)
                    total += weight_of(own[k], highest, row.inverse_temperature);
            total = reduce_block(t, total, places, sum);
        }
        const int64_t n_pieces = top_k_pieces(n_vocab);
        const int64_t piece = t.block_y() * n_pieces + t.block();
        uint64_t* out = work.keys + piece * k_list;
        if (t.index() == 0) work.pieces[piece] = {total, n_nan};
        if (sorts) {
            sort_lists(t, shared, k_top_k_lists);
            join_lists(t, shared, k_top_k_lists);
            if (t.index() < k_list) out[t.index()] = shared[t.index()];
        } else if (t.index() == 0) {
            out[0] = best;
        }
    }
};

// Writes the answers: candidates, totals, the logits of named ids.
struct TopKJoinKernel {
    static constexpr int k_threads = k_top_k_threads;

    const float* logits;
    int64_t n;
    int64_t n_vocab;
    TopKWork work;
    backend::TopKTask task;

    Grid grid() const { return {.n_blocks = n, .shared_bytes = k_top_k_shared_bytes}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const backend::TopKRow& row = task.rows[t.block()];
        if (row.n_candidates == 0) return;
        const int64_t n_pieces = top_k_pieces(n_vocab);
        const PieceFacts* of_pieces = work.pieces + t.block() * n_pieces;
        const uint64_t* lists = work.keys + t.block() * n_pieces * k_list;
        auto* shared = reinterpret_cast<uint64_t*>(t.shared());
        std::byte* places = t.shared() + k_top_k_piece * 8;
        const auto larger = [](auto a, auto b) { return a > b ? a : b; };
        const auto sum = [](auto a, auto b) { return a + b; };

        uint64_t best = 0;
        int32_t n_nan = 0;
        for (int64_t p = t.index(); p < n_pieces; p += k_threads) {
            best = larger(best, lists[p * k_list]);
            n_nan += of_pieces[p].n_nan;
        }
        best = reduce_block(t, best, places, larger);
        n_nan = reduce_block(t, n_nan, places, sum);
        const float highest = candidate_of(best).logit;
        const bool has_totals = best != 0 && highest < INFINITY;
        double total = 0.0;
        if (row.inverse_temperature != 0.0) {
            for (int64_t p = t.index(); p < n_pieces; p += k_threads) {
                const uint64_t first = lists[p * k_list];
                if (has_totals && first != 0)
                    total += of_pieces[p].total *
                             weight_of(candidate_of(first).logit, highest, row.inverse_temperature);
            }
            total = reduce_block(t, total, places, sum);
        }
        auto* facts = reinterpret_cast<backend::TopKFacts*>(task.results) + t.block();
        if (t.index() == 0) {
            facts->total = total;
            facts->exact_total = 0.0;
            facts->n_nan = n_nan;
            if (best == 0) facts->n_candidates = 0;
        }
        auto* named_logits = reinterpret_cast<float*>(task.results + row.named_at);
        for (int i = t.index(); i < row.n_named; i += k_threads)
            named_logits[i] = logits[t.block() * n_vocab + task.named[row.first_named + i]];

        if (row.n_candidates > 1) {
            // The first list has the best of the lists before.
            int64_t done = 0;
            for (int n_kept = 0; done < n_pieces; n_kept = 1) {
                const int64_t left = n_pieces - done;
                const int room = k_top_k_lists - n_kept;
                const int n_new = left < room ? static_cast<int>(left) : room;
                for (int i = t.index(); i < n_new * k_list; i += k_threads)
                    shared[n_kept * k_list + i] = lists[done * k_list + i];
                join_lists(t, shared, n_kept + n_new);
                done += n_new;
            }
        } else {
            if (t.index() == 0) shared[0] = best;
            t.sync();
        }
        const int i = t.index();
        if (i >= row.n_candidates || shared[i] == 0) return;
        reinterpret_cast<Candidate*>(task.results + row.candidates_at)[i] = candidate_of(shared[i]);
        if (i + 1 == row.n_candidates || shared[i + 1] == 0) facts->n_candidates = i + 1;
    }
};

// The sum at temperature 1 that sampling::Softmax::total() gives, to the last bit: eight sums over every eighth weight,
// added from the first to the last. Compiled without contraction of a * b + c.
struct ExactTotalKernel {
    static constexpr int k_threads = 256;
    static constexpr int k_lanes = 8;

    const float* logits;
    int64_t n;
    int64_t n_vocab;
    backend::TopKTask task;

    Grid grid() const { return {.n_blocks = n, .shared_bytes = 2 * k_threads * 8}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const backend::TopKRow& row = task.rows[t.block()];
        if (row.n_candidates == 0 || row.wants_exact_total == 0) return;
        auto* facts = reinterpret_cast<backend::TopKFacts*>(task.results) + t.block();
        if (facts->n_candidates == 0 || facts->n_nan > 0) return;
        const float highest = reinterpret_cast<const Candidate*>(task.results + row.candidates_at)->logit;
        if (!(highest < INFINITY)) return;
        const float* from = logits + t.block() * n_vocab;
        auto* weights = reinterpret_cast<double*>(t.shared());  // two blocks of weights, used in turn
        double sum = 0.0;
        for (int64_t begin = 0; begin < n_vocab; begin += k_threads) {
            const int64_t id = begin + t.index();
            double* block = weights + begin / k_threads % 2 * k_threads;
            double weight = 0.0;
            if (id < n_vocab) {
                const double distance = static_cast<double>(from[id]) - static_cast<double>(highest);
                weight = sampling::portable_exp_in_range(
                    distance > sampling::k_exp_lowest ? distance : sampling::k_exp_lowest);
            }
            block[t.index()] = weight;
            t.sync();
            if (t.index() < k_lanes)
                for (int i = t.index(); i < k_threads; i += k_lanes) sum += block[i];
        }
        t.sync();
        if (t.index() < k_lanes) weights[t.index()] = sum;
        t.sync();
        if (t.index() != 0) return;
        double total = 0.0;
        for (int lane = 0; lane < k_lanes; ++lane) total += weights[lane];
        facts->exact_total = total;
    }
};

}  // namespace minim::cuda::fast
