// SPDX-License-Identifier: Apache-2.0
// The index of block-sparse attention (backend/sparse_attention.h): its queries and keys, the scores of blocks, and the choice, whose
// pages the kernels of attention read as a context (ChosenPages).
#pragma once

#include <cmath>
#include <cstdint>

#include "base/half.h"
#include "cuda/fast/attend_page.h"
#include "cuda/fast/attend_prepare.h"
#include "cuda/fast/attention.h"
#include "cuda/fast/device.h"
#include "cuda/fast/lanes.h"

namespace minim::cuda::fast {

inline constexpr int k_mma_rows = 16;  // of a product on tensor cores
inline constexpr int k_score_warps = 4;

// Returns the key of an index at a position.
MINIM_DEVICE std::byte* index_key(const exact::Index& index, uint64_t page, int64_t position) {
    return reinterpret_cast<std::byte*>(page) + index.at + position % k_page_tokens * index.token_bytes;
}

// Normalises and rotates the index queries and the key of a row. The queries stay floats; the key goes into the cache.
//
// Shape: a block of threads for each row, a warp for each head, 32 elements side by side. Bytes moved for each number: 4 in, 4 out
// (queries), or those of the cache's format. Bound: the latency of a kernel.
template <int dim>
struct PrepareIndexKernel {
    static constexpr int k_threads = 128;
    static constexpr int k_warps = k_threads / 32;
    static constexpr int k_blocks = dim / 32;

    Cache cache;
    exact::Index index;
    exact::IndexRows rows;
    int64_t n;

    // Shared memory has the cosines and sines of a row's position, and a head for each warp.
    Grid grid() const { return {n, 1, (2 * rows.n_frequency + k_warps * dim) * 4}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        auto* cosines = reinterpret_cast<float*>(t.shared());
        float* sines = cosines + rows.n_frequency;
        const int64_t row = t.block();
        const int warp = t.index() / 32;
        const int lane = t.index() % 32;
        float* turning = sines + rows.n_frequency + warp * dim;
        const int32_t position = cache.position[row];
        turns_of(t, k_threads, position, rows.frequency, rows.n_frequency, cosines, sines);
        t.sync();
        MINIM_DEVICE_LOOP
        for (int64_t head = warp; head <= index.shape.n_head; head += k_warps) {
            const bool is_key = head == index.shape.n_head;
            float* x = is_key ? rows.k + row * dim : rows.q + (row * index.shape.n_head + head) * dim;
            const float* gain = is_key ? rows.k_norm : rows.q_norm;
            float own[k_blocks];
            for (int b = 0; b < k_blocks; ++b) own[b] = x[32 * b + lane];
            const float factor = head_factor(t, own, rows.norm_eps);
            for (int b = 0; b < k_blocks; ++b) own[b] = own[b] * factor * gain[32 * b + lane];
            rotate_head(t, own, turning, static_cast<int>(rows.n_frequency), cosines, sines);
            if (is_key) {
                const uint64_t page = cache.pages[cache.first_page[row] + position / k_page_tokens];
                store_kv_row(t, index.format, own, index_key(index, page, position));
            } else {
                for (int b = 0; b < k_blocks; ++b) x[32 * b + lane] = own[b];
            }
        }
    }
};

// Scores the blocks of rows that do not attend to all of theirs.
//
// A warp takes a block of keys and a tile of rows: up to 16 pairs (row, index head), the rows of a product on tensor cores, whose
// columns are 8 keys. Keys come from memory to registers: lane 4 g + c loads 16 bytes of key g, 8 of its elements, and 4 lanes 64
// neighbouring bytes. These elements 32 i + 8 c .. 32 i + 8 c + 7 are what the lane has in the columns 2 c, 2 c + 1, 2 c + 8 and 2 c + 9
// of two products; queries are loaded in the same order, so sums are over all columns. A query is two halves, q = high + low, so that a
// score differs from that of floats by 2^-21 of its parts (BF16: 2^-16).
//
// Shape: with one row a tile, the warps of a block of threads take blocks of keys side by side; otherwise tiles of rows, which read the
// same keys one after the other from the first-level cache. Bytes moved: 2 for each element of the context's keys. Bound: memory.
template <int dim, Format format>
struct ScoreBlocksKernel {
    static_assert(format == Format::f16 || format == Format::bf16);
    static constexpr int k_threads = 32 * k_score_warps;
    static constexpr int k_min_blocks = 3;
    static constexpr int k_groups = dim / 32;  // of 32 columns
    static constexpr int k_tile_keys = 8;

    Cache cache;
    exact::Index index;
    const float* q;  // [n, n_head * dim]
    int64_t n;
    int64_t n_blocks;       // no less than the blocks that any row sees
    int32_t rows_a_tile;    // times n_head is at most 16
    int32_t tiles_a_block;  // divides k_score_warps

    Grid grid() const {
        const int64_t blocks_a_block = k_score_warps / tiles_a_block;
        const int64_t n_tiles = (n + rows_a_tile - 1) / rows_a_tile;
        return {(n_blocks + blocks_a_block - 1) / blocks_a_block,
                (n_tiles + tiles_a_block - 1) / tiles_a_block, 0};
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int warp = t.index() / 32;
        const int64_t block = int64_t{t.block()} * (k_score_warps / tiles_a_block) + warp / tiles_a_block;
        const int64_t tile = int64_t{t.block_y()} * tiles_a_block + warp % tiles_a_block;
        const int64_t first = tile * rows_a_tile;
        const int64_t end = first + rows_a_tile < n ? first + rows_a_tile : n;
        MINIM_DEVICE_LOOP
        for (int64_t row = first; row < end;) {
            // Rows of one sequence, which share its keys.
            int64_t n_run = 1;
            int64_t last = cache.position[row];
            for (; row + n_run < end && cache.first_page[row + n_run] == cache.first_page[row]; ++n_run)
                last = cache.position[row + n_run] > last ? cache.position[row + n_run] : last;
            const int64_t last_block = last / index.shape.block;
            if (last_block >= index.shape.top && block <= last_block)
                score(t, row, static_cast<int>(n_run), last, block);
            row += n_run;
        }
    }

  private:
    struct Fragments {
        uint32_t high[2 * k_groups][4];
        uint32_t low[2 * k_groups][4];
    };

    // Scores a block for n_run rows, whose latest position is `last`.
    template <class T>
    MINIM_DEVICE void score(T& t, int64_t row, int n_run, int64_t last, int64_t block) const {
        const int lane = t.index() % 32;
        const int c = lane % 4;
        const int n_head = static_cast<int>(index.shape.n_head);
        Fragments queries;
        int64_t position[2];  // of the rows of the pairs lane / 4 and lane / 4 + 8; -1: there is no such pair
        MINIM_DEVICE_UNROLLED
        for (int i = 0; i < 2; ++i) {
            const int pair = lane / 4 + 8 * i;
            const bool is_there = pair / n_head < n_run;
            position[i] = is_there ? cache.position[row + pair / n_head] : -1;
            load_queries(t, is_there ? q + (row * n_head + pair) * dim + 8 * c : nullptr, i, queries);
        }
        const uint64_t* pages = cache.pages + cache.first_page[row];
        const int64_t first = block * index.shape.block;
        const int64_t last_seen = last < first + index.shape.block - 1 ? last : first + index.shape.block - 1;
        float largest[2] = {-INFINITY, -INFINITY};
        MINIM_DEVICE_LOOP_BY_2
        for (int64_t at = first; at <= last_seen; at += k_tile_keys) {
            // Behind the last position, a page has any bits; their scores are not read.
            const auto* key = reinterpret_cast<const FourWords*>(
                index_key(index, pages[at / k_page_tokens], at + lane / 4) + 16 * c);
            FourWords elements[k_groups];
            MINIM_DEVICE_UNROLLED
            for (int i = 0; i < k_groups; ++i) elements[i] = key[4 * i];
            float sum[4] = {};
            MINIM_DEVICE_UNROLLED
            for (int i = 0; i < k_groups; ++i) {
                MINIM_DEVICE_UNROLLED
                for (int half = 0; half < 2; ++half) {
                    const uint32_t columns[2] = {elements[i].x[2 * half], elements[i].x[2 * half + 1]};
                    multiply(t, sum, queries.high[2 * i + half], columns);
                    multiply(t, sum, queries.low[2 * i + half], columns);
                }
            }
            for (int i = 0; i < 4; ++i) {
                const bool is_seen = at + 2 * c + i % 2 <= position[i / 2];
                if (is_seen && sum[i] > largest[i / 2]) largest[i / 2] = sum[i];  // false for NaN
            }
        }
        for (int i = 0; i < 2; ++i) {
            for (int mask = 1; mask < 4; mask *= 2)
                largest[i] = std::fmax(largest[i], t.from_lane_xor(largest[i], mask));
            if (c != 0 || position[i] < first) continue;
            const int64_t pair = row * n_head + lane / 4 + 8 * i;
            index.scores[pair * index.n_blocks + block] = largest[i];
        }
    }

    // Loads columns of a pair's query into its row of the fragments; null: zeros.
    template <class T>
    MINIM_DEVICE static void load_queries(T& t, const float* query, int i, Fragments& to) {
        MINIM_DEVICE_UNROLLED
        for (int group = 0; group < k_groups; ++group) {
            MINIM_DEVICE_UNROLLED
            for (int j = 0; j < 4; ++j) {  // columns 2 j and 2 j + 1 of the lane's 8
                float x[2] = {};
                if (query != nullptr)
                    for (int k = 0; k < 2; ++k) x[k] = query[32 * group + 2 * j + k];
                uint32_t& high = to.high[2 * group + j / 2][i + j % 2 * 2];
                high = pack(t, x[0], x[1]);
                to.low[2 * group + j / 2][i + j % 2 * 2] =
                    pack(t, x[0] - unpacked(high & 0xFFFFU), x[1] - unpacked(high >> 16));
            }
        }
    }
    template <class T>
    MINIM_DEVICE static uint32_t pack(T& t, float a, float b) {
        if constexpr (format == Format::f16) {
            return t.pack_f16(a, b);
        } else {
            return float_to_bf16(a) | static_cast<uint32_t>(float_to_bf16(b)) << 16;
        }
    }
    MINIM_DEVICE static float unpacked(uint32_t half) {
        return format == Format::f16 ? Lanes::f16_of(half) : bits_to_float(half << 16);
    }
    template <class T>
    MINIM_DEVICE static void multiply(T& t, float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
        if constexpr (format == Format::f16) {
            t.mma_f16(sum, a, b);
        } else {
            t.mma_bf16(sum, a, b);
        }
    }
};

// Chooses the blocks of a row's index head as backend::choose_blocks() does, and lists their pages.
//
// A warp takes an index head of a row. Each lane finds the best of every 32nd block; the best of the lanes is chosen, and its lane looks
// for its next one, until there are enough.
//
// Shape: a warp for each row and index head. Bytes moved: 4 for each block, 16 for each page. Bound: latency; 16 of 1,024 blocks are
// 32 loads, and 16 times an exchange between lanes and 32 loads of a lane.
struct ChoosePagesKernel {
    static constexpr int k_threads = 128;
    static constexpr int k_warps = k_threads / 32;

    Cache cache;
    exact::Index index;
    ChosenPages to;
    int64_t n;

    // Shared memory has two lists of blocks for each warp.
    Grid grid() const {
        return {(n * index.shape.n_head + k_warps - 1) / k_warps, 1, k_warps * 2 * index.shape.top * 4};
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t item = int64_t{t.block()} * k_warps + t.index() / 32;
        const int lane = t.index() % 32;
        if (item >= n * index.shape.n_head) return;  // the whole warp returns
        const int64_t row = item / index.shape.n_head;
        const int64_t head = item % index.shape.n_head;
        const int64_t block = index.shape.block;
        const int64_t top = index.shape.top;
        const int64_t position = cache.position[row];
        const bool chooses = position / block >= top;
        const int64_t chosen_position = chooses ? (top - 1) * block + position % block : position;
        const int64_t first = row * cache.n_head_kv * to.pages_a_head;
        if (head == 0 && lane == 0) {
            to.tiles[2 * row] = static_cast<int32_t>(row);
            to.tiles[2 * row + 1] = 1;
            to.position[row] = static_cast<int32_t>(chosen_position);
            to.first_page[row] = first;
        }
        const int32_t* chosen = nullptr;
        if (chooses)
            chosen = choose(t, index.scores + item * index.n_blocks, position / block + 1,
                            reinterpret_cast<int32_t*>(t.shared()) + t.index() / 32 * 2 * top);
        const int64_t pages_a_block = block / k_page_tokens;
        const uint64_t* pages = cache.pages + cache.first_page[row];
        for (int64_t i = lane; i <= chosen_position / k_page_tokens; i += 32) {
            const int64_t from = chooses ? chosen[i / pages_a_block] : i / pages_a_block;
            to.pages[first + head * to.pages_a_head + i] = pages[from * pages_a_block + i % pages_a_block];
        }
    }

  private:
    // A number that is larger for higher scores and, of equal scores, for lower blocks. Never 0.
    MINIM_DEVICE static uint64_t rank_of(float score, int64_t block) {
        const uint32_t bits = float_to_bits(score + 0.0F);  // -0 becomes 0
        const uint32_t ordered = bits ^ (bits >> 31 != 0 ? 0xFFFFFFFFU : 0x80000000U);
        return uint64_t{ordered} << 32 | ~static_cast<uint32_t>(block);
    }

    // Returns the chosen ones of n_blocks blocks in ascending order. lists: 2 * top numbers
    template <class T>
    MINIM_DEVICE const int32_t* choose(T& t, const float* scores, int64_t n_blocks, int32_t* lists) const {
        const int lane = t.index() % 32;
        const auto top = static_cast<int>(index.shape.top);
        const int64_t first_local = n_blocks > index.shape.local ? n_blocks - index.shape.local : 0;
        const int64_t end_init = index.shape.init < first_local ? index.shape.init : first_local;
        const auto least = [](int64_t a, int64_t b) { return static_cast<int>(a < b ? a : b); };
        const int n_local = least(n_blocks - first_local, top);
        const int n_init = least(end_init, top - n_local);
        for (int i = lane; i < n_local; i += 32) lists[i] = static_cast<int32_t>(n_blocks - 1 - i);
        for (int i = lane; i < n_init; i += 32) lists[n_local + i] = i;

        const auto best_below = [&](uint64_t bound) {
            uint64_t best = 0;
            for (int64_t block = end_init + lane; block < first_local; block += 32) {
                const uint64_t rank = rank_of(scores[block], block);
                if (rank < bound && rank > best) best = rank;
            }
            return best;
        };
        uint64_t own = best_below(UINT64_MAX);
        MINIM_DEVICE_LOOP
        for (int i = n_local + n_init; i < top; ++i) {
            const auto own_score = static_cast<uint32_t>(own >> 32);
            const uint32_t score = t.largest_of_lanes(own_score);
            const uint32_t place = t.largest_of_lanes(own_score == score ? static_cast<uint32_t>(own) : 0);
            if (own == (uint64_t{score} << 32 | place)) {
                lists[i] = static_cast<int32_t>(~place);
                own = best_below(own);
            }
        }
        t.sync_warp();
        for (int i = lane; i < top; i += 32) {
            int n_lower = 0;
            for (int j = 0; j < top; ++j) n_lower += lists[j] < lists[i] ? 1 : 0;
            lists[top + n_lower] = lists[i];
        }
        t.sync_warp();
        return lists + top;
    }
};

}  // namespace minim::cuda::fast
