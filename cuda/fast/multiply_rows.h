// SPDX-License-Identifier: Apache-2.0
// The functions multiply_rows() and multiply_scaled_rows() of threads (device.h) as loops of load_matrices() and mma_f16() or mma_bf16().
//
// Layout of `b` in shared memory: blocks of 8 inputs x 8 columns, 128 neighbouring bytes each, so that the eight rows of a block are
// in different banks. Columns 8 c .. 8 c + 7 of input i, 16 bytes, lie at (c * n_inputs / 8 + i / 8) * 128 + i % 8 * 16.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/platform.h"
#include "cuda/fast/device.h"
#include "format/format.h"

namespace minim::cuda::fast {

// Returns the offset in `b` of column `column`, a multiple of 8, of an input.
template <int n_inputs>
MINIM_HOST_DEVICE constexpr int row_place(int input, int column) {
    return (column / 8 * (n_inputs / 8) + input / 8) * 128 + input % 8 * 16;
}

// halves: F16 or BF16, the format of a and b.
template <Format halves, class T>
MINIM_DEVICE void mma_of(T& t, float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (halves == Format::bf16) {
        t.mma_bf16(c, a, b);
    } else {
        t.mma_f16(c, a, b);
    }
}

// Returns what a lane passes to load_matrices() for the first 16 inputs and columns: the lanes of each eight name the rows of a block.
template <int n_inputs, class T>
MINIM_DEVICE const std::byte* row_of_lane(T& t, const std::byte* b) {
    const int lane = t.index() % 32;
    return b + row_place<n_inputs>(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
}

template <int n_inputs, Format halves, int n_panels, int n_steps, class T>
MINIM_DEVICE void multiply_rows_by_mma(T& t, float (&sum)[n_panels][n_inputs / 8][4],
                                       const uint32_t (&a)[n_panels][n_steps][4], const std::byte* b,
                                       int count) {
    static_assert(n_inputs % 16 == 0);
    const std::byte* row = row_of_lane<n_inputs>(t, b);
    MINIM_DEVICE_UNROLLED
    for (int j = 0; j < n_inputs / 16; ++j) {
        if (16 * j >= count) break;  // the same for the whole block
        MINIM_DEVICE_UNROLLED
        for (int k = 0; k < n_steps; ++k) {
            uint32_t words[4];
            t.load_matrices(words, row + row_place<n_inputs>(16 * j, 16 * k));
            const uint32_t first[2] = {words[0], words[1]};
            const uint32_t second[2] = {words[2], words[3]};
            MINIM_DEVICE_UNROLLED
            for (int p = 0; p < n_panels; ++p) {
                mma_of<halves>(t, sum[p][2 * j], a[p][k], first);
                mma_of<halves>(t, sum[p][2 * j + 1], a[p][k], second);
            }
        }
    }
}

template <int n_inputs, int n_panels, int n_steps, class T>
MINIM_DEVICE void multiply_scaled_rows_by_mma(T& t, float (&sum)[n_panels][n_inputs / 8][4],
                                              const uint32_t (&a)[n_panels][n_steps][4],
                                              const float (&scale)[n_panels][2], const std::byte* b,
                                              int count) {
    static_assert(n_inputs % 16 == 0);
    const std::byte* row = row_of_lane<n_inputs>(t, b);
    MINIM_DEVICE_UNROLLED
    for (int j = 0; j < n_inputs / 16; ++j) {
        if (16 * j >= count) break;  // the same for the whole block
        float dot[n_panels][2][4] = {};
        MINIM_DEVICE_UNROLLED
        for (int k = 0; k < n_steps; ++k) {
            uint32_t words[4];
            t.load_matrices(words, row + row_place<n_inputs>(16 * j, 16 * k));
            const uint32_t first[2] = {words[0], words[1]};
            const uint32_t second[2] = {words[2], words[3]};
            MINIM_DEVICE_UNROLLED
            for (int p = 0; p < n_panels; ++p) {
                t.mma_f16(dot[p][0], a[p][k], first);
                t.mma_f16(dot[p][1], a[p][k], second);
            }
        }
        MINIM_DEVICE_UNROLLED
        for (int p = 0; p < n_panels; ++p) {
            for (int h = 0; h < 2; ++h)
                for (int i = 0; i < 4; ++i)
                    sum[p][2 * j + h][i] = fmaf(dot[p][h][i], scale[p][i / 2], sum[p][2 * j + h][i]);
        }
    }
}

}  // namespace minim::cuda::fast
