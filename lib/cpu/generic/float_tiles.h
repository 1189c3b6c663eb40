// SPDX-License-Identifier: Apache-2.0
// Tiles of rows of weights and rows of floats, for the kernels that multiply floats.
#pragma once

#include "cpu/generic/weights_to_come.h"
#include "cpu/kernels.h"
#include "panel/kernel_inline.h"

namespace minim::cpu::generic {

template <class V>
struct Linear {
    static const std::byte* weight_row(const LinearArgs& args, int64_t r) {
        return args.weight + r * args.row_bytes;
    }

    static const std::byte* input_row(const LinearArgs& args, int64_t t) {
        const int64_t row = args.input_rows != nullptr ? args.input_rows[t] : t;
        return args.input + row * args.input_row_bytes;
    }

    static void put(const LinearArgs& args, int64_t r, int64_t t, typename V::F32 lanes) {
        float& y = args.y[t * args.y_stride + r];
        const float dot = V::sum(lanes) * args.scale;
        y = args.add ? y + dot : dot;
    }
};

// The rows to prefetch: four rows after those of a tile, because the hardware prefetcher does not follow from one tile to the
// next. At the end of the weights, they are rows of the next weights, or rows that are already in the cache.
template <int n_rows>
struct RowsAhead {
    static constexpr int k_ahead = 4;
    static_assert(n_rows <= k_ahead);

    const std::byte* row[n_rows];

    RowsAhead(const LinearArgs& args, int64_t r0) {
        for (int r = 0; r < n_rows; ++r) {
            const int64_t after = r0 + k_ahead + r;
            const std::byte* here = args.weight + (r0 + r) * args.row_bytes;
            const std::byte* next = args.next_weight == nullptr
                                        ? here
                                        : args.next_weight + (after - args.n_rows) * args.row_bytes;
            row[r] = after < args.n_rows ? here + k_ahead * args.row_bytes : next;
        }
    }
    // Prefetches the cache line of byte `at` of row r.
    MINIM_KERNEL_INLINE void fetch(int r, int64_t at) const { __builtin_prefetch(row[r] + at, 0, 2); }
};

// A single row is contiguous with the next row.
template <>
struct RowsAhead<1> {
    static constexpr int64_t k_ahead_bytes = 8192;

    const std::byte* row[1];

    RowsAhead(const LinearArgs& args, int64_t r0)
        : row{WeightsToCome(args).after(args.weight + r0 * args.row_bytes, k_ahead_bytes)} {}
    MINIM_KERNEL_INLINE void fetch(int /*r*/, int64_t at) const { __builtin_prefetch(row[0] + at); }
};

template <int value>
struct Count {
    static constexpr int k_value = value;
};

// Calls tile(first row, rows, first token, tokens) for all rows and n_tokens tokens.
template <int n_rows, int n_tokens, class Tile>
void for_each_row_tile(const LinearArgs& args, int64_t t, const Tile& tile) {
    int64_t r = 0;
    for (; r + n_rows <= args.n_rows; r += n_rows) tile(r, Count<n_rows>(), t, Count<n_tokens>());
    for (; r < args.n_rows; ++r) tile(r, Count<1>(), t, Count<n_tokens>());
}

// tile() computes one register tile, at most k_rows x k_tokens of several tokens. Tiles do not change results: a loaded weight
// is used for several tokens, and the latency of sums is hidden. The outer loop goes over tokens, the inner one over rows: the rows
// come from memory once and then from the cache. k_tokens is 2 or 4. A single token is multiplied with k_rows_of_one rows at a time.
template <int k_rows, int k_tokens, int k_rows_of_one, class Tile>
void for_each_tile(const LinearArgs& args, const Tile& tile) {
    if (args.n_tokens == 1) return for_each_row_tile<k_rows_of_one, 1>(args, 0, tile);
    int64_t t = 0;
    for (; t + k_tokens <= args.n_tokens; t += k_tokens) for_each_row_tile<k_rows, k_tokens>(args, t, tile);
    for (; t + 2 <= args.n_tokens; t += 2) for_each_row_tile<2, 2>(args, t, tile);
    for (; t < args.n_tokens; ++t) for_each_row_tile<4, 1>(args, t, tile);
}

}  // namespace minim::cpu::generic
