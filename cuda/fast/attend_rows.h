// SPDX-License-Identifier: Apache-2.0
// Attention of sixteen query rows of a warp: the scores of a few keys on tensor cores, the softmax relative to the
// largest score so far, and the sum of values, also on tensor cores (Dao, FlashAttention-2, 2023).
//
// A thread with g = lane / 4 and c = lane % 4 has, for rows g and g + 8, the scores of keys 8 j + 2 c and + 1, and
// the output's elements 8 j + 2 c and + 1: the layout of the tensor cores' fragments. So scores can be used directly
// as the left factor of the values. Queries stay in registers: 4 x head_dim / 16 of them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cuda/fast/device.h"

namespace minim::cuda::fast {

// Returns the score that is subtracted from exponents of 2: the largest so far, or 0 before a row's first key.
MINIM_DEVICE float reference_of(float largest) {
    return largest == -INFINITY ? 0.0F : largest;
}

template <int head_dim>
struct AttendRows {
    uint32_t query[head_dim / 16][4];
    float o[head_dim / 8][4];
    float largest[2];
    float sum[2];  // of this thread's keys, until finish()

    // Loads the queries and clears the sums. `rows`: the first elements of rows g and g + 8; null if a row does not
    // exist.
    template <class T>
    MINIM_DEVICE void start(T& t, const uint16_t* const (&rows)[2]) {
        const int c = t.index() % 4;
        for (int k = 0; k < head_dim / 16; ++k) {
            for (int i = 0; i < 4; ++i) {
                const uint16_t* row = rows[i % 2];
                query[k][i] = row == nullptr
                                  ? 0
                                  : *reinterpret_cast<const uint32_t*>(row + 16 * k + 8 * (i / 2) + 2 * c);
            }
        }
        for (int j = 0; j < head_dim / 8; ++j)
            for (int i = 0; i < 4; ++i) o[j][i] = 0.0F;
        for (int i = 0; i < 2; ++i) {
            largest[i] = -INFINITY;
            sum[i] = 0.0F;
        }
    }

    // Adds n_keys tokens. `keys`, `values`: their rows, row_bytes apart in shared memory. n_visible: the numbers of
    // these tokens that rows g and g + 8 attend to; ignored if all rows of the warp attend to all tokens.
    template <int n_keys, int row_bytes, class T>
    MINIM_DEVICE void add_keys(T& t, const std::byte* keys, const std::byte* values, bool all_visible,
                               const int (&n_visible)[2]) {
        float score[n_keys / 8][4];
        multiply_keys<n_keys, row_bytes>(t, keys, score);
        if (!all_visible) {
            const int c = t.index() % 4;
            for (int j = 0; j < n_keys / 8; ++j)
                for (int i = 0; i < 4; ++i)
                    if (8 * j + 2 * c + i % 2 >= n_visible[i / 2]) score[j][i] = -INFINITY;
        }
        weigh<n_keys>(t, score);
        add_values<n_keys, row_bytes>(t, values, score);
    }

    // Adds up the sums of the four threads of a row.
    template <class T>
    MINIM_DEVICE void finish(T& t) {
        for (int i = 0; i < 2; ++i)
            for (int mask = 1; mask <= 2; mask *= 2) sum[i] += t.from_lane_xor(sum[i], mask);
    }

  private:
    template <int n_keys, int row_bytes, class T>
    MINIM_DEVICE void multiply_keys(T& t, const std::byte* keys, float (&score)[n_keys / 8][4]) const {
        const int lane = t.index() % 32;
        const std::byte* row = keys + (lane % 8 + lane / 16 * 8) * row_bytes + lane / 8 % 2 * 16;
        for (int j = 0; j < n_keys / 8; ++j)
            for (int i = 0; i < 4; ++i) score[j][i] = 0.0F;
        for (int k = 0; k < head_dim / 16; ++k) {
            for (int j = 0; j < n_keys / 8; j += 2) {
                uint32_t b[4];
                t.load_matrices(b, row + 8 * j * row_bytes + 32 * k);
                t.mma_f16(score[j], query[k], {b[0], b[1]});
                t.mma_f16(score[j + 1], query[k], {b[2], b[3]});
            }
        }
    }

    // Turns scores into weights, and rescales the sums so far to the new largest score.
    template <int n_keys, class T>
    MINIM_DEVICE void weigh(T& t, float (&score)[n_keys / 8][4]) {
        float shrink[2];
        for (int i = 0; i < 2; ++i) {
            float now = largest[i];
            for (int j = 0; j < n_keys / 8; ++j)
                now = std::fmax(now, std::fmax(score[j][2 * i], score[j][2 * i + 1]));
            for (int mask = 1; mask <= 2; mask *= 2) now = std::fmax(now, t.from_lane_xor(now, mask));
            const float reference = reference_of(now);
            shrink[i] = t.exp2(largest[i] - reference);
            largest[i] = now;
            sum[i] *= shrink[i];
            for (int j = 0; j < n_keys / 8; ++j) {
                for (int k = 2 * i; k < 2 * i + 2; ++k) {
                    score[j][k] = t.exp2(score[j][k] - reference);
                    sum[i] += score[j][k];
                }
            }
        }
        for (int j = 0; j < head_dim / 8; ++j)
            for (int i = 0; i < 4; ++i) o[j][i] *= shrink[i / 2];
    }

    template <int n_keys, int row_bytes, class T>
    MINIM_DEVICE void add_values(T& t, const std::byte* values, const float (&weight)[n_keys / 8][4]) {
        const int lane = t.index() % 32;
        const std::byte* row = values + lane % 16 * row_bytes + lane / 16 * 16;
        for (int j = 0; j < n_keys / 8; j += 2) {
            const uint32_t a[4] = {t.pack_f16(weight[j][0], weight[j][1]),
                                   t.pack_f16(weight[j][2], weight[j][3]),
                                   t.pack_f16(weight[j + 1][0], weight[j + 1][1]),
                                   t.pack_f16(weight[j + 1][2], weight[j + 1][3])};
            for (int d = 0; d < head_dim / 8; d += 2) {
                uint32_t b[4];
                t.load_transposed(b, row + 8 * j * row_bytes + 16 * d);
                t.mma_f16(o[d], a, {b[0], b[1]});
                t.mma_f16(o[d + 1], a, {b[2], b[3]});
            }
        }
    }
};

}  // namespace minim::cuda::fast
