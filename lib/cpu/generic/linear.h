// How every linear kernel walks its rows and tokens. `tile(first row, rows, first token, tokens)` computes
// one register tile; tiles change no result, they only let a loaded weight serve several tokens and hide the
// latency of sums.
#pragma once

#include "cpu/kernels.h"

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

template <int value>
struct Count {
    static constexpr int k_value = value;
};

// Tokens outside, rows inside: a tile of rows is read once from memory and then again from the cache.
template <int token_tile, int row_tile, class Tile>
void for_each_tile(const LinearArgs& args, const Tile& tile) {
    int64_t t = 0;
    for (; t + token_tile <= args.n_tokens; t += token_tile) {
        for (int64_t r = 0; r < args.n_rows; ++r) tile(r, Count<1>(), t, Count<token_tile>());
    }
    for (; t < args.n_tokens; ++t) {
        int64_t r = 0;
        for (; r + row_tile <= args.n_rows; r += row_tile) tile(r, Count<row_tile>(), t, Count<1>());
        for (; r < args.n_rows; ++r) tile(r, Count<1>(), t, Count<1>());
    }
}

}  // namespace minim::cpu::generic
