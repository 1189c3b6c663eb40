// SPDX-License-Identifier: Apache-2.0
// Scores of keys stored as codes in blocks of 32 columns (Q8_0, Q4_0), from integer products: half the work of float products.
// A query is converted to 16-bit codes with one factor, which is as accurate as floats here.
//
// As in attention.h, a score has four lanes and keys are placed side by side in four registers. But a lane of a register has
// four codes or, widened, two: of 16 columns, lane l has columns 4l .. 4l + 3. The products of a block are summed in each lane as
// integers (exact), converted to float, multiplied by the block's scale and added to the lane's sum, block after block
// (README.md, rule 4).
#pragma once

#include "cpu/generic/attention.h"
#include "cpu/generic/quantize.h"

namespace minim::cpu::generic {

// Loads the codes of columns 16 * half .. 16 * half + 15 of a block of each row.
template <class V>
struct Q8_0Codes {
    using Block = Q8_0;
    static MINIM_KERNEL_INLINE auto load(const std::byte* const (&block)[V::k_quads], int half) {
        const std::byte* codes[V::k_quads];
        for (int k = 0; k < V::k_quads; ++k) codes[k] = block[k] + Block::codes_at + 16 * half;
        return V::load_code_quads(codes);
    }
};

template <class V>
struct Q4_0Codes {
    using Block = Q4_0;
    static MINIM_KERNEL_INLINE auto load(const std::byte* const (&block)[V::k_quads], int half) {
        const std::byte* codes[V::k_quads];
        for (int k = 0; k < V::k_quads; ++k) codes[k] = block[k] + Block::codes_at;
        return V::nibbles_less_8(V::load_code_quads(codes), half != 0);
    }
};

// Converts a query to codes. In every 16 columns, the codes of columns 0, 2, 4 ... come first, then those of columns 1, 3, 5 ...:
// the order in which a register of codes is widened.
template <class V>
float quantize_query(const float* x, int64_t cols, int16_t* codes) {
    auto largest = V::zero();
    for (int64_t c = 0; c < cols; c += 16) largest = V::max_magnitude(largest, load<V>(x + c));
    constexpr float k_limit = 32767.0F;
    const float d = V::largest_magnitude(largest) / k_limit;
    const auto inverse = inverse_of_scale<V>(d);
    for (int64_t c = 0; c < cols; c += 16) {
        const auto scaled = clamp_code<V>(V::mul(load<V>(x + c), inverse), k_limit);
        int16_t in_order[16];
        V::store_i16(in_order, towards_half_away<V>(scaled));
        for (int i = 0; i < 16; ++i) codes[c + 8 * (i % 2) + i / 2] = in_order[i];
    }
    return d;
}

// The layout of ScoreArgs::tile for codes. First come the scales, four registers for each block. Then come the codes, four
// parts for each block and each of the four registers of keys: the even and the odd codes of the first 16 columns, then those
// of the other 16 columns.
template <class V>
struct CodeTile {
    float* scales;
    int16_t* codes;
    CodeTile(const ScoreArgs& args) : scales(args.tile) {
        codes = reinterpret_cast<int16_t*>(scales + args.cols / 32 * 4 * k_register_floats<V>);
    }
    MINIM_KERNEL_INLINE float* scale(int64_t b, int i) const {
        return scales + (4 * b + i) * k_register_floats<V>;
    }
    MINIM_KERNEL_INLINE int16_t* code(int64_t b, int i, int part) const {
        return codes + (4 * (4 * b + i) + part) * 2 * k_register_floats<V>;
    }
};

template <class V, class Codes>
MINIM_KERNEL_INLINE void lay_codes_side_by_side(const ScoreArgs& args, int64_t r0) {
    using Block = typename Codes::Block;
    const CodeTile<V> tile(args);
    for (int64_t b = 0; b < args.cols / 32; ++b) {
        const int64_t at = b * Block::block_bytes;
        float scale[k_tile_keys<V>];
        for (int k = 0; k < k_tile_keys<V>; ++k)
            scale[k] = V::load_one_f16(key_row(args, r0 + k) + at + Block::d_at);
        typename V::Quads scales[4];
        V::spread_quads(scale, scales);
        for (int i = 0; i < 4; ++i) {
            V::store_quads(tile.scale(b, i), scales[i]);
            const std::byte* block[V::k_quads];
            for (int k = 0; k < V::k_quads; ++k) block[k] = key_row(args, r0 + 4 * k + i) + at;
            for (int half = 0; half < 2; ++half) {
                const auto bytes = Codes::load(block, half);
                V::store_quads(tile.code(b, i, 2 * half), V::even_words(bytes));
                V::store_quads(tile.code(b, i, 2 * half + 1), V::odd_words(bytes));
            }
        }
    }
}

template <class V, int n_queries>
MINIM_KERNEL_INLINE void score_code_tile(const ScoreArgs& args, int64_t r0, int64_t t0,
                                         const std::byte* ahead) {
    using Quads = typename V::Quads;
    const CodeTile<V> tile(args);
    const int16_t* query[n_queries];
    for (int t = 0; t < n_queries; ++t) query[t] = args.query_codes + args.query_rows[t0 + t] * args.cols;
    Quads sum[n_queries][4];
    for (auto& of_query : sum) {
        for (Quads& lanes : of_query) lanes = V::zero_quads();
    }
    const int64_t n_blocks = args.cols / 32;
    const int64_t step_bytes = ahead == nullptr ? 0 : k_tile_keys<V> * args.key_bytes / n_blocks;
    for (int64_t b = 0; b < n_blocks; ++b) {
        for (int64_t at = 0; at < step_bytes; at += 64) __builtin_prefetch(ahead + b * step_bytes + at);
        decltype(V::all_quads(query[0])) q[n_queries][4];
        for (int t = 0; t < n_queries; ++t) {
            for (int part = 0; part < 4; ++part) q[t][part] = V::all_quads(query[t] + 8 * part);
            query[t] += 32;
        }
        for (int i = 0; i < 4; ++i) {
            const Quads scale = V::load_quads(tile.scale(b, i));
            for (int t = 0; t < n_queries; ++t) {
                auto dot = V::dot_words(V::load_quads(tile.code(b, i, 0)), q[t][0]);
                for (int part = 1; part < 4; ++part)
                    dot = V::add_dot_words(dot, V::load_quads(tile.code(b, i, part)), q[t][part]);
                sum[t][i] = V::fma_quads(V::to_float(dot), scale, sum[t][i]);
            }
        }
    }
    float factor[n_queries];
    for (int t = 0; t < n_queries; ++t) factor[t] = args.query_scales[args.query_rows[t0 + t]] * args.scale;
    put_scores<V, n_queries>(args, r0, t0, sum, factor);
}

template <class V, class Codes>
void scores_of_codes(const ScoreArgs& args) {
    for (int64_t r = 0; r < args.n_keys; r += k_tile_keys<V>) {
        lay_codes_side_by_side<V, Codes>(args, r);
        for_each_query_tile<V::k_code_queries>(args, r, [&](auto n, int64_t t, const std::byte* ahead) {
            score_code_tile<V, n>(args, r, t, ahead);
        });
    }
}

}  // namespace minim::cpu::generic
