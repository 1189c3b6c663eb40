// SPDX-License-Identifier: Apache-2.0
// Attention of one row with its preparation before and the join of its parts after it: one launch instead of three.
//
// Shape: as narrow tiles (attend.h), a block of threads for each KV head and part of the context. Each block normalises the
// row's queries for itself, since their mean square is one of all heads: 4 bytes for each number of q from the second-level
// cache, 24 KB at the model's size, beside the 32 KB of a page. It prepares only its own heads, into shared memory. The block
// whose part has the newest page also prepares the row's key and value: into the cache for later steps, and for itself into
// shared memory, in the cache's format, so that it computes with what the cache has. No other block needs them. The last
// block of a head to arrive joins the parts. Results have the bits of the separate kernels. Bound: short contexts, latency: of
// the row's loads, a barrier, a page, the blocks' arrival and the parts; long ones as attend.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/fast/attend.h"
#include "cuda/fast/attend_combine.h"
#include "cuda/fast/attend_prepare.h"
#include "cuda/fast/device.h"
#include "cuda/fast/last_block.h"

namespace minim::cuda::fast {

// What a block has in shared memory beside its pages, and before the first page has arrived, in the place of a later one.
template <int head_dim>
struct RowPlaces {
    static constexpr int k_warps = 4;
    static constexpr int k_query_row = head_dim + 8;  // halves: rows in different banks
    static constexpr int k_groups = SquareSums<32 * k_warps, 1>::k_groups;

    std::byte* key;    // the row's, in the cache's format
    std::byte* value;  // the same
    uint16_t* query;   // [group, k_query_row]
    int32_t* is_last;
    // Until the first page has arrived:
    float* heads;    // [k_warps, head_dim]
    float* q_sums;   // [k_groups]
    float* k_sums;   // the same
    float* cosines;  // [n_frequency]
    float* sines;

    static MINIM_HOST_DEVICE int64_t whole_words(int64_t bytes) { return (bytes + 15) / 16 * 16; }
    // Returns the bytes that stay.
    static MINIM_HOST_DEVICE int64_t bytes(const PrepareArgs& args) {
        const Cache& c = args.cache;
        return whole_words(c.k_token_bytes) + whole_words(c.v_token_bytes) +
               c.n_head / c.n_head_kv * k_query_row * 2 + 16;
    }
    MINIM_DEVICE RowPlaces(std::byte* kept, std::byte* until_page, const PrepareArgs& args) {
        const Cache& c = args.cache;
        key = kept;
        value = key + whole_words(c.k_token_bytes);
        query = reinterpret_cast<uint16_t*>(value + whole_words(c.v_token_bytes));
        is_last = reinterpret_cast<int32_t*>(query + c.n_head / c.n_head_kv * k_query_row);
        heads = reinterpret_cast<float*>(until_page);
        q_sums = heads + k_warps * head_dim;
        k_sums = q_sums + k_groups;
        cosines = k_sums + k_groups;
        sines = cosines + args.n_frequency;  // at most head_dim / 2 each
    }
};

// The inputs of a block's attention (StoredRows in attend.h), which it prepares.
template <int head_dim>
struct PreparedRow {
    static constexpr bool k_prepares = true;
    static constexpr int k_blocks = head_dim / 32;  // of a head
    static constexpr int k_warps = RowPlaces<head_dim>::k_warps;
    static constexpr int k_threads = 32 * k_warps;
    // The first warps have more query heads, if their number is no multiple of four.
    static constexpr int k_key_warp = 2;
    static constexpr int k_value_warp = 3;
    static constexpr int k_kept = 2;  // query heads of a warp whose loads are under way together
    using QuerySquares = SquareSums<k_threads, 6>;  // 48 heads of 128
    using KeySquares = SquareSums<k_threads, 1>;
    struct Head {
        float x[k_blocks];  // element 32 b + lane
    };

    const PrepareArgs& args;
    float scale;  // of the queries
    RowPlaces<head_dim> places;
    int32_t head;         // of keys
    int32_t group;        // query heads of it
    int32_t newest_page;  // the page that gets the row's key and value; -1: another block has it
    int32_t slot;         // in that page
    std::byte* page;      // the first page of the block

    Head q_gain[k_kept] = {};
    Head k_gain = {};
    Head q[k_kept] = {};
    Head kv = {};  // of the warps for the key and the value
    QuerySquares q_squares = {};
    KeySquares k_squares = {};

    // Before the kernel's inputs are there: what does not depend on earlier work in the stream.
    template <class T>
    MINIM_DEVICE void begin(T& t, int32_t position) {
        const int warp = t.index() / 32;
        for (int k = 0; k < k_kept; ++k)
            if (warp + k * k_warps < group) q_gain[k] = load(t, args.q_norm, query_head(warp + k * k_warps));
        if (warp == k_key_warp) k_gain = load(t, args.k_norm, head);
        turn_position(t, k_threads, position, args.frequency, static_cast<int>(args.n_frequency),
                      places.cosines, places.sines);
    }
    // Starts the loads of the row.
    template <class T>
    MINIM_DEVICE void load_row(T& t) {
        const int warp = t.index() / 32;
        if (newest_page >= 0) {
            k_squares.load(t, args.k, n_keys());
            if (warp == k_key_warp) kv = load(t, args.k, head);
            if (warp == k_value_warp) kv = load(t, args.v, head);
        }
        for (int k = 0; k < k_kept; ++k)
            if (warp + k * k_warps < group) q[k] = load(t, args.q, query_head(warp + k * k_warps));
        q_squares.load(t, args.q, n_queries());
    }

    template <class T>
    MINIM_DEVICE void prepare(T& t) {
        const int warp = t.index() / 32;
        if (newest_page >= 0) k_squares.finish(t, args.k, n_keys(), places.k_sums);
        q_squares.finish(t, args.q, n_queries(), places.q_sums);
        t.sync();  // the cosines are there as well
        const float factor = QuerySquares::factor(places.q_sums, n_queries(), args.norm_eps);
        for (int k = 0; k < k_kept; ++k)
            if (warp + k * k_warps < group) put_query(t, warp + k * k_warps, q[k], q_gain[k], factor);
        MINIM_DEVICE_LOOP
        for (int h = warp + k_kept * k_warps; h < group; h += k_warps)
            put_query(t, h, load(t, args.q, query_head(h)), load(t, args.q_norm, query_head(h)), factor);
        if (newest_page < 0) return;
        const Cache& c = args.cache;
        if (warp == k_key_warp) {
            prepare_head(t, kv, k_gain, KeySquares::factor(places.k_sums, n_keys(), args.norm_eps));
            store(t, c.k_format, places.key, c.k_at + head * c.k_head_bytes, c.k_token_bytes);
        } else if (warp == k_value_warp) {
            store(t, c.v_format, places.value, c.v_at + head * c.v_head_bytes, c.v_token_bytes);
        }
    }

    MINIM_DEVICE const uint16_t* query_row(const AttendTile&, int r) const {
        return places.query + r * RowPlaces<head_dim>::k_query_row;
    }
    MINIM_DEVICE int n_copied(int at, int n_tokens) const {
        return at == newest_page ? n_tokens - 1 : n_tokens;
    }
    // The warps put what they have prepared themselves.
    template <class T, class Tiles>
    MINIM_DEVICE void put_own(T& t, int at, const Tiles& keys, const Tiles& values, int turn) const {
        if (at != newest_page) return;
        if (t.index() / 32 == k_key_warp && !keys.converts()) keys.put(t, own_key(at), turn);
        if (t.index() / 32 == k_value_warp && !values.converts()) values.put(t, own_value(at), turn);
    }
    MINIM_DEVICE OwnToken own_key(int at) const { return {at == newest_page ? slot : -1, places.key}; }
    MINIM_DEVICE OwnToken own_value(int at) const { return {at == newest_page ? slot : -1, places.value}; }

  private:
    MINIM_DEVICE int n_queries() const { return static_cast<int>(args.cache.n_head) * head_dim; }
    MINIM_DEVICE int n_keys() const { return static_cast<int>(args.cache.n_head_kv) * head_dim; }
    MINIM_DEVICE int query_head(int of_group) const { return head * group + of_group; }
    template <class T>
    MINIM_DEVICE static Head load(T& t, const float* x, int of_head) {
        Head loaded;
        for (int b = 0; b < k_blocks; ++b) loaded.x[b] = x[of_head * head_dim + 32 * b + t.index() % 32];
        return loaded;
    }
    template <class T>
    MINIM_DEVICE void prepare_head(T& t, Head& x, const Head& gain, float factor) const {
        for (int b = 0; b < k_blocks; ++b) x.x[b] = x.x[b] * factor * gain.x[b];
        rotate_lanes(t, x.x, places.heads + t.index() / 32 * head_dim, places.cosines, places.sines,
                     static_cast<int>(args.n_frequency));
        if (args.hadamard) hadamard_lanes(t, x.x);
    }
    template <class T>
    MINIM_DEVICE void put_query(T& t, int of_group, Head x, const Head& gain, float factor) const {
        prepare_head(t, x, gain, factor);
        uint16_t* to = places.query + of_group * RowPlaces<head_dim>::k_query_row + t.index() % 32;
        for (int b = 0; b < k_blocks; ++b)
            to[32 * b] = static_cast<uint16_t>(t.pack_f16(x.x[b] * scale, 0.0F));
    }
    // Encodes the warp's key or value to shared memory, and copies it to its place in the page.
    template <class T>
    MINIM_DEVICE void store(T& t, Format format, std::byte* row, int64_t at, int64_t token_bytes) const {
        store_kv_row(t, format, kv.x, reinterpret_cast<uint8_t*>(row));
        t.sync_warp();
        const auto* from = reinterpret_cast<const uint16_t*>(row);
        auto* to = reinterpret_cast<uint16_t*>(page + at + slot * token_bytes);
        MINIM_DEVICE_LOOP
        for (int i = t.index() % 32; 2 * i < token_bytes; i += 32) to[i] = from[i];
    }
};

template <int head_dim>
struct AttendRowKernel {
    using Attend = AttendKernel<head_dim, 1, RowPlaces<head_dim>::k_warps>;
    using Places = RowPlaces<head_dim>;
    static constexpr int k_threads = Attend::k_threads;
    static constexpr int k_warps = Places::k_warps;
    static constexpr bool k_starts_early = true;
    static constexpr int k_least_blocks = 3;  // as of narrow tiles, for which attend_splits() counts
    static constexpr int k_blocks = head_dim / 32;
    static_assert(4 * (k_warps * head_dim + 2 * Places::k_groups + head_dim) <= Attend::Tiles::k_tile_bytes);

    Attend attend;  // without queries and tiles
    PrepareArgs prepare;
    float scale;         // of the queries
    int32_t* arrived;    // [n_head_kv]
    Q8Block* quantized;  // may be null
    bool prefetches;     // the first page of each block

    Grid grid() const {
        Grid grid = attend.grid();
        grid.shared_bytes += Places::bytes(prepare);
        return grid;
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const Cache& c = prepare.cache;
        const int split = t.block_y();
        // Reads tables that were copied before the step.
        const int32_t position = t.load_fresh(c.position);
        const AttendTile tile = {0, 1, t.block(), attend.group, position, static_cast<int32_t>(c.n_head)};
        const int n_pages = tile.n_pages();
        if (split >= n_pages) {
            t.wait_for_inputs();
            return;
        }
        const uint64_t* pages = c.pages + t.load_fresh(c.first_page);
        const bool has_newest = split == (n_pages - 1) % attend.n_splits;
        const uint64_t newest = has_newest ? t.load_fresh(pages + n_pages - 1) : 0;
        const uint64_t first_address = t.load_fresh(pages + split);
        prefetch_page(t, tile, first_address, split);
        PreparedRow<head_dim> row = {
            .args = prepare,
            .scale = scale,
            .places = {t.shared() + attend.tile_bytes(), attend.free_tile(t), prepare},
            .head = tile.head,
            .group = tile.group,
            .newest_page = has_newest ? n_pages - 1 : -1,
            .slot = position % k_page_tokens,
            .page = reinterpret_cast<std::byte*>(newest)};
        row.begin(t, position);
        t.wait_for_inputs();
        row.load_row(t);

        AttendRows<head_dim> rows;
        attend.add_pages(t, tile, {pages, first_address, split}, row, rows);
        rows.finish(t);
        const bool is_whole = attend.n_splits == 1;
        attend.join_warps(t, tile, rows, is_whole ? quantized : nullptr);
        if (is_whole) return;
        const int n_parts = n_pages < attend.n_splits ? n_pages : attend.n_splits;
        if (is_last_block(t, arrived + tile.head, n_parts, row.places.is_last)) join_parts(t, tile, n_parts);
    }

  private:
    // Asks for a page's tokens before the kernel's inputs are there: earlier steps have written all but one. The second-level
    // cache has what any kernel has written, so that nothing old is read later.
    template <class T>
    MINIM_DEVICE void prefetch_page(T& t, const AttendTile& tile, uint64_t address, int page) const {
        if (!prefetches || t.index() % 32 != 0 || t.index() / 32 > 1) return;
        const Cache& c = prepare.cache;
        const bool is_key = t.index() == 0;
        const int rest = tile.n_keys() - page * k_page_tokens;
        const int64_t n_tokens = rest < k_page_tokens ? rest : k_page_tokens;
        const int64_t bytes = Places::whole_words(n_tokens * (is_key ? c.k_token_bytes : c.v_token_bytes));
        const int64_t at = is_key ? c.k_at + tile.head * c.k_head_bytes : c.v_at + tile.head * c.v_head_bytes;
        t.prefetch(reinterpret_cast<const std::byte*>(address) + at, static_cast<int>(bytes));
    }

    // Joins the parts of a head's rows as CombineKernel does. A warp takes two rows at a time, so that the loads of both are
    // under way together. The parts come from the second-level cache: the multiprocessor's own may have those of an earlier
    // layer.
    template <class T>
    MINIM_DEVICE void join_parts(T& t, const AttendTile& tile, int n_parts) const {
        using Joined = JoinedParts<k_blocks>;
        constexpr int k_rows = 2;
        const int lane = t.index() % 32;
        const int64_t first = int64_t{tile.head} * attend.n_splits * Attend::k_rows;
        const auto* states = reinterpret_cast<const uint64_t*>(attend.partial.state) + first;
        const float* values = attend.partial.o + first * head_dim + lane;
        MINIM_DEVICE_LOOP
        for (int r = t.index() / 32; r < tile.group; r += k_rows * k_warps) {
            Joined joined[k_rows];
            MINIM_DEVICE_LOOP
            for (int part = 0; part < n_parts; part += Joined::k_together) {
                PartState state[k_rows][Joined::k_together];
                float own[k_rows][Joined::k_together][k_blocks];
                for (int i = 0; i < k_rows; ++i) {
                    const int row = r + i * k_warps < tile.group ? r + i * k_warps : r;
                    for (int k = 0; k < Joined::k_together; ++k) {
                        const int from = part + k < n_parts ? part + k : n_parts - 1;
                        const int at = from * Attend::k_rows + row;
                        const uint64_t both = t.load_fresh(states + at);
                        state[i][k] = {bits_to_float(static_cast<uint32_t>(both)),
                                       bits_to_float(static_cast<uint32_t>(both >> 32))};
                        for (int b = 0; b < k_blocks; ++b)
                            own[i][k][b] = t.load_fresh(values + at * head_dim + 32 * b);
                    }
                }
                for (int i = 0; i < k_rows; ++i) joined[i].add(t, state[i], own[i], n_parts - part);
            }
            // No loop: the compiler would keep `joined` in memory.
            put_joined(t, tile.place(r) * head_dim, joined[0]);
            if (r + k_warps < tile.group) put_joined(t, tile.place(r + k_warps) * head_dim, joined[1]);
        }
    }
    template <class T>
    MINIM_DEVICE void put_joined(T& t, int64_t first, const JoinedParts<k_blocks>& joined) const {
        for (int b = 0; b < k_blocks; ++b) {
            const float x = joined.value[b] / joined.sum;
            attend.o[first + 32 * b + t.index() % 32] = x;
            if (quantized != nullptr) quantize_lanes(t, x, quantized + first / 32 + b);
        }
    }
};

}  // namespace minim::cuda::fast
