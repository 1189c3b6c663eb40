// SPDX-License-Identifier: Apache-2.0
// Attention of a batch of rows to the pages of their sequences, causal, with grouped query heads.
//
// Shape: a block of threads takes a tile of rows (attention.h), a KV head and one of n_splits parts of the context.
// It processes the pages one by one: K and V of the next page are copied while those of this one are used. The first page is
// copied at once, in F16 also the second; in a batch of one row before the row is prepared, unless it is the newest page. Wide: eight warps, each with 16 of the tile's 128 rows and all 64 keys of a page. Narrow: four warps, each with the
// tile's 16 rows and 16 keys of a page; their results are joined in shared memory. With n_splits > 1 the blocks'
// results go to a work buffer and are joined there (attend_combine.h); a block whose part is empty ends at once and
// leaves nothing. Bytes moved: K and V of the context once for each tile and KV head; 2 for each number of q, 4 for
// each of o. Bound: narrow tiles, memory: each half that is read is used in 16 products, one for each row. Wide tiles,
// tensor cores: 4 x 128 x head_dim operations for a key, against 4 x head_dim bytes from the second-level cache and,
// eight times, from shared memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cuda/fast/attend_page.h"
#include "cuda/fast/attend_rows.h"
#include "cuda/fast/attention.h"
#include "cuda/fast/device.h"

namespace minim::cuda::fast {

// The partial results of blocks that share rows: for each row the undivided output, the largest score and the divisor. Slot
// (tile * n_head_kv + head) * n_splits + split has the rows of a block.
struct Partial {
    float* o;      // [slot, rows of a tile, head_dim]
    float* state;  // [slot, rows of a tile]: PartState
};
struct alignas(8) PartState {
    float largest;
    float sum;
};

// Sets the weights of n results of a row, each of other keys, in their sum. Returns the state of the sum.
template <int n, class T>
MINIM_DEVICE PartState weigh_parts(T& t, const PartState (&state)[n], float (&weight)[n]) {
    PartState all = {-INFINITY, 0.0F};
    for (const PartState& one : state) all.largest = std::fmax(all.largest, one.largest);
    for (int k = 0; k < n; ++k) {
        weight[k] = t.exp2(state[k].largest - reference_of(all.largest));
        all.sum += weight[k] * state[k].sum;
    }
    return all;
}

// The rows and keys that a block of threads processes.
struct AttendTile {
    int32_t first_row;
    int32_t n_tokens;
    int32_t head;
    int32_t group;  // query heads of a KV head
    int32_t first_position;
    int32_t n_head;

    MINIM_DEVICE int n_rows() const { return n_tokens * group; }
    MINIM_DEVICE int n_keys() const { return first_position + n_tokens; }
    MINIM_DEVICE int n_pages() const { return (n_keys() + k_page_tokens - 1) / k_page_tokens; }
    // Returns the number of keys that a row of the tile attends to; for rows beyond the last one, as for the last.
    MINIM_DEVICE int n_visible(int r) const {
        const int token = r / group;
        return first_position + (token < n_tokens ? token + 1 : n_tokens);
    }
    // Returns where a row's head lies in q or o, counted in heads.
    MINIM_DEVICE int64_t place(int r) const {
        return (int64_t{first_row} + r / group) * n_head + int64_t{head} * group + r % group;
    }
};

template <int head_dim, int row_warps, int key_warps>
struct AttendKernel {
    static constexpr int k_threads = 32 * row_warps * key_warps;
    static constexpr bool k_starts_early = true;
    static constexpr int k_min_blocks = row_warps == 1 ? 3 : 1;  // narrow tiles: as attend_splits() assumes
    static constexpr int k_rows = 16 * row_warps;
    static constexpr int k_keys = k_page_tokens / key_warps;  // keys of a page that a warp takes
    static constexpr int k_joined_row = head_dim + 8;         // floats: rows of a warp in different banks
    using Tiles = KvTiles<head_dim, k_threads>;

    Cache cache;
    const uint16_t* query;
    const int32_t* tiles;
    int32_t n_tiles;
    int32_t n_splits;
    int32_t group;         // query heads of a KV head
    bool is_one_row;       // AttendArgs::is_one_row
    int64_t pages_a_head;  // AttendArgs::pages_a_head
    Partial partial;
    float* o;

    Grid grid() const {
        return {n_tiles * cache.n_head_kv, n_splits,
                Tiles::bytes(cache.k_format, cache.k_token_bytes) +
                    Tiles::bytes(cache.v_format, cache.v_token_bytes)};
    }
    // Two tiles, and copies of two pages or two tiles more, have room for the rows of all warps when they are joined.
    static_assert(key_warps == 1 || key_warps * 16 * (k_joined_row + 2) * 4 <=
                                        2 * Tiles::k_tile_bytes + 2 * k_page_tokens * head_dim / 2);

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        // The tiles of a head run side by side and share its pages in the cache. The last tiles, which have the longest
        // contexts, come first.
        const int tile_index = n_tiles - 1 - t.block() % n_tiles;
        const int split = t.block_y();
        // Reads tables that were copied before the step, if not by the kernel before this one.
        if (pages_a_head != 0) t.wait_for_inputs();
        AttendTile tile;
        tile.first_row = t.load_fresh(tiles + 2 * tile_index);
        tile.n_tokens = t.load_fresh(tiles + 2 * tile_index + 1);
        tile.head = t.block() / n_tiles;
        tile.n_head = static_cast<int32_t>(cache.n_head);
        tile.group = group;
        tile.first_position = tile.n_tokens == 0 ? 0 : t.load_fresh(cache.position + tile.first_row);
        const bool has_pages = tile.n_tokens != 0 && split < tile.n_pages();
        const uint64_t* pages = has_pages ? cache.pages + t.load_fresh(cache.first_page + tile.first_row) +
                                                tile.head * pages_a_head
                                          : nullptr;
        if (!has_pages) {
            t.wait_for_inputs();
            return;
        }

        AttendRows<head_dim> rows;
        add_pages(t, tile, split, pages, rows);
        rows.finish(t);
        if constexpr (key_warps == 1) {
            write_rows(t, tile, rows);
        } else {
            join_warps(t, tile, rows);
        }
    }

  private:
    // Waits for the kernel's inputs, and adds the pages of a block's part of the context.
    template <class T>
    MINIM_DEVICE void add_pages(T& t, const AttendTile& tile, int split, const uint64_t* pages,
                                AttendRows<head_dim>& rows) const {
        const Tiles keys = {cache.k_format, static_cast<int>(cache.k_token_bytes), t.shared()};
        const Tiles values = {cache.v_format, static_cast<int>(cache.v_token_bytes),
                              t.shared() + keys.bytes()};
        const int n_pages = tile.n_pages();
        const auto page_of = [&](int turn) { return split + turn * n_splits; };
        const auto tokens_of = [&](int page) {
            const int rest = tile.n_keys() - page * k_page_tokens;
            return rest < k_page_tokens ? rest : k_page_tokens;
        };
        const auto start = [&](const Tiles& kv, uint64_t address, int64_t at, int turn) {
            if (page_of(turn) < n_pages)
                kv.start(t, reinterpret_cast<const std::byte*>(address) + at, tokens_of(page_of(turn)), turn);
        };
        const int64_t k_at = cache.k_at + tile.head * cache.k_head_bytes;
        const int64_t v_at = cache.v_at + tile.head * cache.v_head_bytes;
        // Starts with one page or two (n_at_first()), with those of earlier steps before the kernel's inputs are there.
        int n_early = 0;
        while (is_one_row && n_early < 2 && page_of(n_early) + 1 < n_pages) ++n_early;
        MINIM_DEVICE_LOOP
        for (int turn = 0; turn < 2; ++turn) {
            if (turn == n_early) t.wait_for_inputs();
            const uint64_t address = page_of(turn) < n_pages ? t.load_fresh(pages + page_of(turn)) : 0;
            if (turn < keys.n_at_first()) start(keys, address, k_at, turn);
            if (turn < values.n_at_first()) start(values, address, v_at, turn);
            t.copies_end_group();
        }
        if (n_early == 2) t.wait_for_inputs();
        uint64_t next_address = page_of(1) < n_pages ? pages[page_of(1)] : 0;

        const int warp = t.index() / 32;
        const int first_row = 16 * (warp % row_warps);
        const int first_key_of_warp = k_keys * (warp / row_warps);
        const int r = first_row + t.index() % 32 / 4;
        const uint16_t* query_rows[2];
        int visible[2];
        for (int i = 0; i < 2; ++i) {
            query_rows[i] = r + 8 * i < tile.n_rows() ? query + tile.place(r + 8 * i) * head_dim : nullptr;
            visible[i] = tile.n_visible(r + 8 * i);
        }
        const int visible_to_all = tile.n_visible(first_row);
        rows.start(t, query_rows);

        int turn = 0;
        for (int page = split; page < n_pages; page += n_splits) {
            if (turn == 0) {
                t.template copies_wait<1>();
            } else {
                t.template copies_wait<0>();
            }
            t.sync();  // this page has arrived, and no thread reads the one before
            MINIM_DEVICE_LOOP
            for (int i = 0; i < 2; ++i) {  // a loop, so that the code is there once
                const Tiles kv = i == 0 ? keys : values;
                if (kv.converts()) kv.convert(t, tokens_of(page));
            }
            if (keys.converts() || values.converts()) t.sync();
            const int next = turn + 1;
            if (next >= keys.n_at_first()) start(keys, next_address, k_at, next);
            if (next >= values.n_at_first()) start(values, next_address, v_at, next);
            t.copies_end_group();
            next_address = page_of(next + 1) < n_pages ? pages[page_of(next + 1)] : 0;
            const int first_key = page * k_page_tokens + first_key_of_warp;
            if (first_row < tile.n_rows() && first_key < tile.n_keys()) {
                const int offset = first_key_of_warp * Tiles::k_row_bytes;
                const int n_visible[2] = {visible[0] - first_key, visible[1] - first_key};
                rows.template add_keys<k_keys, Tiles::k_row_bytes>(
                    t, keys.tile(turn) + offset, values.tile(turn) + offset,
                    visible_to_all >= first_key + k_keys, n_visible);
            }
            ++turn;
        }
    }

    // Writes a warp's rows from its registers, two neighbouring elements at once.
    template <class T>
    MINIM_DEVICE void write_rows(T& t, const AttendTile& tile, const AttendRows<head_dim>& rows) const {
        const int c = t.index() % 4;
        const int64_t first_slot = slot_of_rows(t, tile);
        for (int i = 0; i < 2; ++i) {
            const int r = t.index() / 32 * 16 + t.index() % 32 / 4 + 8 * i;
            if (r >= tile.n_rows()) continue;
            const float factor = n_splits == 1 ? 1.0F / rows.sum[i] : 1.0F;
            float* out = output(tile, first_slot, r);
            for (int j = 0; j < head_dim / 8; ++j)
                *reinterpret_cast<TwoFloats*>(out + 8 * j + 2 * c) = {rows.o[j][2 * i] * factor,
                                                                      rows.o[j][2 * i + 1] * factor};
            if (c == 0 && n_splits != 1) put_state(first_slot + r, {rows.largest[i], rows.sum[i]});
        }
    }

    // Joins the results of the warps, which have processed different keys for the same rows, and writes them.
    template <class T>
    MINIM_DEVICE void join_warps(T& t, const AttendTile& tile, const AttendRows<head_dim>& rows) const {
        auto* joined = reinterpret_cast<float*>(t.shared());  // [key_warps, 16, k_joined_row]
        auto* states =
            reinterpret_cast<PartState*>(joined + key_warps * 16 * k_joined_row);  // [key_warps, 16]
        const int warp = t.index() / 32;
        const int c = t.index() % 4;
        t.sync();  // no thread reads the tiles any more
        for (int i = 0; i < 2; ++i) {
            const int r = warp * 16 + t.index() % 32 / 4 + 8 * i;
            for (int j = 0; j < head_dim / 8; ++j)
                *reinterpret_cast<TwoFloats*>(joined + r * k_joined_row + 8 * j + 2 * c) = {
                    rows.o[j][2 * i], rows.o[j][2 * i + 1]};
            if (c == 0) states[r] = {rows.largest[i], rows.sum[i]};
        }
        t.sync();
        // A warp for each row, which computes the row's weights once.
        const int64_t first_slot = slot_of_rows(t, tile);
        for (int r = warp; r < tile.n_rows(); r += k_threads / 32) {
            PartState state[key_warps];
            for (int w = 0; w < key_warps; ++w) state[w] = states[16 * w + r];
            float weight[key_warps];
            const PartState all = weigh_parts(t, state, weight);
            const float factor = n_splits == 1 ? 1.0F / all.sum : 1.0F;
            float* out = output(tile, first_slot, r);
            for (int d = t.index() % 32; d < head_dim; d += 32) {
                float value = 0.0F;
                for (int w = 0; w < key_warps; ++w)
                    value += weight[w] * joined[(16 * w + r) * k_joined_row + d];
                out[d] = value * factor;
            }
            if (t.index() % 32 == 0 && n_splits != 1) put_state(first_slot + r, all);
        }
    }

    // Returns where the tile's rows begin in `partial`, in rows.
    template <class T>
    MINIM_DEVICE int64_t slot_of_rows(T& t, const AttendTile& tile) const {
        const int64_t tile_index = n_tiles - 1 - t.block() % n_tiles;
        return ((tile_index * cache.n_head_kv + tile.head) * n_splits + t.block_y()) * k_rows;
    }
    MINIM_DEVICE float* output(const AttendTile& tile, int64_t first_slot, int r) const {
        return n_splits == 1 ? o + tile.place(r) * head_dim : partial.o + (first_slot + r) * head_dim;
    }
    MINIM_DEVICE void put_state(int64_t slot, const PartState& state) const {
        reinterpret_cast<PartState*>(partial.state)[slot] = state;
    }
};

}  // namespace minim::cuda::fast
