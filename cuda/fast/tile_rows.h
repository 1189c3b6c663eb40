// SPDX-License-Identifier: Apache-2.0
// Weights that are not packed, F16, BF16 and FP8_E4M3_B128, in the tile kernel (linear_tile.h): rows as in the file, 128 columns of them
// at a time. load_matrices() gives a fragment:
//
//   F16, BF16   of 16 columns; BF16 weights have inputs in BF16
//   FP8         of 32 columns: in each word of four codes two of the first 16 columns and two of the last. Codes become halves exactly.
//               The products of 64 columns are added up, and then multiplied by the block's scale, a float, so that no scale is
//               too large or too small.
//
// Layout: in shared memory rows of halves are 272 bytes apart, rows of FP8 144, 128 of codes and the scale, so that eight rows meet in no
// bank. Rows beyond the last one are not copied: nothing reads their sums. Bytes moved: as packed weights. Bound: tensor cores; for 32
// columns and 128 inputs 64 products, 20 (F16, BF16) or 18 (FP8) loads of matrices, and for FP8 64 multiplications of sums.
#pragma once

#include "cuda/fast/tile_kernels.h"
#include "cuda/fast/tile_memory.h"
#include "format/fp8_e4m3_b128.h"
#include "format/plain.h"

namespace minim::cuda::fast {

// The 32 rows of a warp: 16 of one matrix, and the 16 after them or those of another matrix.
struct TileRowsSource {
    const std::byte* first;
    const std::byte* second;
    int64_t row_bytes;
    int64_t n_first;  // rows that are there, at most 16 are used; may be negative
    int64_t n_second;
    bool are_there;
};

MINIM_DEVICE TileRowsSource tile_rows_of(const TileCall& call, const TileTask& work, int warp) {
    const bool has_up = call.kind == TileKind::activate;
    const int64_t row = work.first_row + (has_up ? 16 : 32) * warp;
    const int64_t rows_left = work.rows - row;
    const auto* weights = reinterpret_cast<const std::byte*>(work.weights) + row * call.row_bytes;
    if (has_up) {
        const auto* up = reinterpret_cast<const std::byte*>(work.up) + row * call.row_bytes;
        return {weights, up, call.row_bytes, rows_left, rows_left, rows_left > 0};
    }
    return {weights, weights + 16 * call.row_bytes, call.row_bytes, rows_left, rows_left - 16, rows_left > 0};
}

// Returns what a lane passes to load_matrices() for the first 16 rows and 32 bytes of each.
template <int row_stride, class T>
MINIM_DEVICE const std::byte* tile_row_of_lane(T& t, const std::byte* rows) {
    const int lane = t.index() % 32;
    return rows + lane % 16 * row_stride + lane / 16 * 16;
}

// Of weights without headers, tables and memory of a warp's own.
template <class Block>
struct TileRows {
    static_assert(Block::block_elems == 1 && Block::block_bytes == 2);
    using Source = TileRowsSource;
    static constexpr HalfKind k_halves = half_kind(Block::format, false);
    static constexpr float k_factor = 1.0F;
    static constexpr int k_cols = 128;
    static constexpr int k_row_stride = 2 * k_cols + 16;
    static constexpr int k_warp_bytes = 32 * k_row_stride;
    static constexpr int k_headers_bytes = 0;
    static constexpr int k_own_bytes = 0;
    static constexpr int k_table_bytes = 0;

    MINIM_HOST_DEVICE static int64_t computed_rows(int64_t rows) { return rows; }
    MINIM_DEVICE static Source source_of(const TileCall& call, const TileTask& work, int warp) {
        return tile_rows_of(call, work, warp);
    }
    template <class T>
    MINIM_DEVICE static void copy_table(T&, int, std::byte*) {}
    template <class T>
    MINIM_DEVICE static void copy_headers(T&, const Source&, std::byte*) {}

    template <class T>
    MINIM_DEVICE static void copy(T& t, const Source& rows, int64_t n_cols, int stage, std::byte* to) {
        constexpr int k_pieces = 2 * k_cols / 16;
        const int64_t cols_left = n_cols - int64_t{stage} * k_cols;
        const int lane = t.index() % 32;
        const int at = lane % k_pieces * 16;
        if (at >= 2 * cols_left) return;
        const int64_t from = int64_t{stage} * (2 * k_cols) + at;
        MINIM_DEVICE_LOOP
        for (int r = lane / k_pieces; r < 16; r += 32 / k_pieces) {
            if (r < rows.n_first)
                t.copy_16(to + r * k_row_stride + at, rows.first + r * rows.row_bytes + from);
            if (r < rows.n_second)
                t.copy_16(to + (16 + r) * k_row_stride + at, rows.second + r * rows.row_bytes + from);
        }
    }

    template <int n_inputs, class T>
    MINIM_DEVICE static void multiply(T& t, const TileWarpMemory&, const std::byte* weights,
                                      const std::byte* inputs, int first_unit, int n_units, int count,
                                      float (&sum)[2][n_inputs / 8][4]) {
        const std::byte* own = tile_row_of_lane<k_row_stride>(t, weights);
        MINIM_DEVICE_LOOP
        for (int u = 0; u < n_units; ++u) {
            uint32_t a[2][2][4];
            for (int p = 0; p < 2; ++p)
                for (int k = 0; k < 2; ++k)
                    t.load_matrices(a[p][k], own + 16 * p * k_row_stride + 64 * (first_unit + u) + 32 * k);
            t.template multiply_rows<n_inputs, Block::format>(sum, a, inputs + row_place<n_inputs>(0, 32 * u),
                                                              count);
        }
    }
};

template <>
struct TileRows<FP8_E4M3_B128> {
    using Block = FP8_E4M3_B128;
    using Source = TileRowsSource;
    static constexpr HalfKind k_halves = HalfKind::f16;
    static constexpr float k_factor = 1.0F;
    static constexpr int k_cols = Block::block_elems;
    static constexpr int k_scale_at = k_cols;  // in a row, behind its codes
    static constexpr int k_row_stride = k_cols + 16;
    static constexpr int k_warp_bytes = 32 * k_row_stride;
    static constexpr int k_headers_bytes = 0;
    static constexpr int k_own_bytes = 0;
    static constexpr int k_table_bytes = 0;

    MINIM_HOST_DEVICE static int64_t computed_rows(int64_t rows) { return rows; }
    MINIM_DEVICE static Source source_of(const TileCall& call, const TileTask& work, int warp) {
        return tile_rows_of(call, work, warp);
    }
    template <class T>
    MINIM_DEVICE static void copy_table(T&, int, std::byte*) {}
    template <class T>
    MINIM_DEVICE static void copy_headers(T&, const Source&, std::byte*) {}

    // Blocks of 132 bytes are aligned to four.
    template <class T>
    MINIM_DEVICE static void copy(T& t, const Source& rows, int64_t n_cols, int stage, std::byte* to) {
        if (int64_t{stage} * k_cols >= n_cols) return;
        const int lane = t.index() % 32;
        const int64_t block = int64_t{stage} * Block::block_bytes;
        const int64_t from = block + Block::codes_at + 4 * lane;
        MINIM_DEVICE_LOOP
        for (int r = 0; r < 16; ++r) {
            if (r < rows.n_first)
                t.copy_4(to + r * k_row_stride + 4 * lane, rows.first + r * rows.row_bytes + from);
            if (r < rows.n_second)
                t.copy_4(to + (16 + r) * k_row_stride + 4 * lane, rows.second + r * rows.row_bytes + from);
        }
        const int row = lane % 16;
        const bool is_first = lane < 16;
        if (row < (is_first ? rows.n_first : rows.n_second)) {
            t.copy_4(to + lane * k_row_stride + k_scale_at,
                     (is_first ? rows.first : rows.second) + row * rows.row_bytes + block + Block::scale_at);
        }
    }

    // Two units at a time.
    template <int n_inputs, class T>
    MINIM_DEVICE static void multiply(T& t, const TileWarpMemory&, const std::byte* weights,
                                      const std::byte* inputs, int first_unit, int n_units, int count,
                                      float (&sum)[2][n_inputs / 8][4]) {
        const std::byte* own = tile_row_of_lane<k_row_stride>(t, weights);
        const std::byte* scales = weights + t.index() % 32 / 4 * k_row_stride + k_scale_at;
        float scale[2][2];
        for (int p = 0; p < 2; ++p)
            for (int r = 0; r < 2; ++r)
                scale[p][r] = *reinterpret_cast<const float*>(scales + (16 * p + 8 * r) * k_row_stride);
        MINIM_DEVICE_LOOP
        for (int u = 0; u < n_units; u += 2) {
            uint32_t a[2][4][4];
            for (int p = 0; p < 2; ++p) {
                for (int v = 0; v < 2; ++v) {
                    uint32_t codes[4];
                    t.load_matrices(codes, own + 16 * p * k_row_stride + 32 * (first_unit + u + v));
                    for (int i = 0; i < 4; ++i) {
                        uint32_t halves[2];
                        t.halves_of_e4m3(halves, codes[i]);
                        for (int k = 0; k < 2; ++k) a[p][2 * v + k][i] = halves[k];
                    }
                }
            }
            t.template multiply_scaled_rows<n_inputs>(sum, a, scale, inputs + row_place<n_inputs>(0, 32 * u),
                                                      count);
        }
    }
};

}  // namespace minim::cuda::fast
