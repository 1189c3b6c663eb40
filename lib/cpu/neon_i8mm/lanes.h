// SPDX-License-Identifier: Apache-2.0
// The lanes of NEON with what FEAT_I8MM adds: SMMLA multiplies two rows with two input rows, 8 columns of each, twice the products of
// SDOT. A register then has the sums of rows 0 and 1 with tokens 0 and 1, in the order (0, 0), (0, 1), (1, 0), (1, 1). Weights and codes
// must come in such pairs: generic/row_pairs.h multiplies unpacked panels so. Few tokens are multiplied while unpacking, by SDOT.
#pragma once

#include "cpu/neon_dotprod/lanes.h"

namespace minim::cpu::neon_i8mm {

struct I8mm {};

struct Lanes : neon_dotprod::LanesOf<I8mm> {
    static constexpr int k_tile_pairs = 4;  // pairs of rows multiplied with a tile of tokens together

    // Stores the codes of a unit's strip of four rows: for every 8 columns, the codes of rows 0 and 1, then those of rows 2 and 3. The
    // columns of a panel are 128 bytes apart.
    static MINIM_KERNEL_INLINE void store_pairs(std::byte* to, const Int (&code)[8]) {
        for (int chunk = 0; chunk < 4; ++chunk) {
            store(to + 128 * chunk, {vzip1q_u32(code[2 * chunk].v, code[2 * chunk + 1].v)});
            store(to + 128 * chunk + 16, {vzip2q_u32(code[2 * chunk].v, code[2 * chunk + 1].v)});
        }
    }
    // dot[p][q] += pair p of rows . pair q of tokens, of 8 * n_chunks columns (a multiple of 16).
    template <int n_chunks, int n_pairs, int n_token_pairs>
    static MINIM_KERNEL_INLINE void dot_pairs(Int (&dot)[n_pairs][n_token_pairs], const std::byte* weight,
                                              const int8_t* const (&code)[2 * n_token_pairs]) {
        static_assert(n_chunks % 2 == 0);
#pragma GCC unroll 2
        for (int chunk = 0; chunk < n_chunks; chunk += 2) {
            int8x16_t codes[2][n_token_pairs];
            for (int q = 0; q < n_token_pairs; ++q) {
                const int64x2_t even = vreinterpretq_s64_s8(vld1q_s8(code[2 * q] + 8 * chunk));
                const int64x2_t odd = vreinterpretq_s64_s8(vld1q_s8(code[2 * q + 1] + 8 * chunk));
                codes[0][q] = vreinterpretq_s8_s64(vzip1q_s64(even, odd));
                codes[1][q] = vreinterpretq_s8_s64(vzip2q_s64(even, odd));
            }
            for (int half = 0; half < 2; ++half) {
                for (int p = 0; p < n_pairs; ++p) {
                    const int8x16_t w = vreinterpretq_s8_u32(load(weight + 128 * (chunk + half) + 16 * p).v);
                    for (int q = 0; q < n_token_pairs; ++q) {
                        const int32x4_t sum = vreinterpretq_s32_u32(dot[p][q].v);
                        dot[p][q].v = vreinterpretq_u32_s32(vmmlaq_s32(sum, w, codes[half][q]));
                    }
                }
            }
        }
    }
    // Returns numbers of four rows for their two pairs: 0, 0, 1, 1 and 2, 2, 3, 3.
    static MINIM_KERNEL_INLINE void spread_rows(Float four, Float& first, Float& second) {
        first.v = vzip1q_f32(four.v, four.v);
        second.v = vzip2q_f32(four.v, four.v);
    }
    // Returns numbers of two tokens for a pair of rows.
    static MINIM_KERNEL_INLINE Float of_tokens(float a, float b) {
        const float32x2_t two = {a, b};
        return {vcombine_f32(two, two)};
    }
    static MINIM_KERNEL_INLINE Int of_tokens(int32_t a, int32_t b) {
        const int32x2_t two = {a, b};
        return {vreinterpretq_u32_s32(vcombine_s32(two, two))};
    }
    // Returns the sums of four rows with one token each, from those of two pairs.
    static MINIM_KERNEL_INLINE void part_tokens(Float first, Float second, Float& even, Float& odd) {
        even.v = vuzp1q_f32(first.v, second.v);
        odd.v = vuzp2q_f32(first.v, second.v);
    }
};

}  // namespace minim::cpu::neon_i8mm
