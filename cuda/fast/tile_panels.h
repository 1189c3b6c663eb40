// SPDX-License-Identifier: Apache-2.0
// Packed weights in the tile kernel (linear_tile.h). A unit of 32 columns of a warp's two panels:
//
//   1. A lane decodes a row (unpack_unit()), and stores its codes and its scales, as halves times 2^10, in the warp's own memory.
//   2. load_matrices() gives the codes of rows g and g + 8, four neighbouring columns each: the fragments of two products of 16
//      columns, in the order of columns of half_inputs.h.
//   3. Codes become halves with a byte permutation and a subtraction, exactly, and weights with a multiplication.
//
// Layout: panels of lib/panel/, copied as they are; a warp's own rows 48 bytes apart, 32 of codes and 16 of scales and minima, so that
// neither stores nor loads of eight rows meet in a bank.
#pragma once

#include "cuda/fast/panel_dot.h"
#include "cuda/fast/tile_kernels.h"
#include "cuda/fast/tile_memory.h"

namespace minim::cuda::fast {

// The scales and minima of a row's unit, as pairs of equal halves: scales of the groups, then minima.
template <class Kind>
inline constexpr int k_tile_numbers = Kind::k_groups*(Kind::k_minima ? 2 : 1);
template <int n>
struct alignas(4 * n) TileNumbers {
    uint32_t both[n];
};

template <class P>
struct TilePanels {
    using Block = typename P::Block;
    using Kind = typename P::Kind;
    static constexpr HalfKind k_halves = HalfKind::packed;
    static constexpr float k_factor = k_unpacked_factor;  // sums are too large by
    static constexpr int k_cols = k_stage_cols;           // of a stage
    static constexpr int k_panel_bytes = k_stage_panel_bytes<Block>;
    // The second panel of a warp: words of one and of the other are never in the same banks.
    static constexpr int k_second_at = k_panel_bytes + (192 - k_panel_bytes % 128) % 128;
    static constexpr int k_warp_bytes = k_second_at + k_panel_bytes;
    static constexpr int k_row_header_bytes = Block::row_header_bytes * static_cast<int>(k_panel_rows);
    static_assert(k_row_header_bytes <= 64);
    static constexpr int k_headers_bytes = 2 * 64;
    static constexpr int k_row_stride = 48;
    static constexpr int k_numbers_at = 32;  // in a row, behind its codes
    static constexpr int k_own_bytes = 32 * k_row_stride;
    static constexpr int k_table_bytes = fast::k_table_bytes<P>;
    static constexpr int k_numbers = k_tile_numbers<Kind>;

    // The panels of a warp.
    struct Source {
        const std::byte* first;
        const std::byte* second;
        bool are_there;
    };

    // Returns the rows that the kernel computes: those of whole panels.
    MINIM_HOST_DEVICE static int64_t computed_rows(int64_t rows) {
        return rows / k_panel_rows * k_panel_rows;
    }

    MINIM_DEVICE static Source source_of(const TileCall& call, const TileTask& work, int warp) {
        const auto at = [&](const uint8_t* weights, int64_t row) {
            return reinterpret_cast<const std::byte*>(weights) + row * call.row_bytes;
        };
        if (call.kind == TileKind::activate) {
            const int64_t row = work.first_row + 16 * warp;
            return {at(work.weights, row), at(work.up, row), row < work.rows};
        }
        const int64_t row = work.first_row + 32 * warp;
        // Beyond the last panel the one before it stands for it.
        return {at(work.weights, row), at(work.weights, row + 16 < work.rows ? row + 16 : row),
                row < work.rows};
    }

    // All threads of the block call it.
    template <class T>
    MINIM_DEVICE static void copy_table(T& t, int n_threads, std::byte* to) {
        fast::copy_table<P>(t, n_threads, to);
    }
    template <class T>
    MINIM_DEVICE static void copy_headers(T& t, const Source& panels, std::byte* to) {
        if constexpr (k_row_header_bytes > 0) {
            const int at = t.index() % 32 * 16;
            if (!panels.are_there || at >= k_row_header_bytes) return;
            t.copy_16(to + at, panels.first + at);
            t.copy_16(to + 64 + at, panels.second + at);
        }
    }
    // Starts copying a stage of the warp's panels.
    template <class T>
    MINIM_DEVICE static void copy(T& t, const Source& panels, int64_t n_cols, int stage, std::byte* to) {
        const int64_t cols_left = n_cols - int64_t{stage} * k_cols;
        if (!panels.are_there || cols_left <= 0) return;
        const int cols = cols_left < k_cols ? static_cast<int>(cols_left) : k_cols;
        const int bytes = cols / Block::block_elems * Block::block_bytes * static_cast<int>(k_panel_rows);
        const int64_t first = k_row_header_bytes + int64_t{stage} * k_panel_bytes;
        for (int at = 16 * (t.index() % 32); at < bytes; at += 16 * 32) {
            t.copy_16(to + at, panels.first + first + at);
            t.copy_16(to + k_second_at + at, panels.second + first + at);
        }
    }

    // Adds the products of n_units units from `first_unit` of a stage on.
    template <int n_inputs, class T>
    MINIM_DEVICE static void multiply(T& t, const TileWarpMemory& memory, const std::byte* weights,
                                      const std::byte* inputs, int first_unit, int n_units, int count,
                                      float (&sum)[2][n_inputs / 8][4]) {
        MINIM_DEVICE_LOOP
        for (int u = 0; u < n_units; ++u) {
            decode(t, memory, weights, first_unit + u);
            uint32_t a[2][2][4];
            for (int p = 0; p < 2; ++p) make_fragments(t, memory.own + 16 * p * k_row_stride, a[p]);
            t.template multiply_rows<n_inputs>(sum, a, inputs + row_place<n_inputs>(0, 32 * u), count);
        }
    }

  private:
    // Decodes a unit of the warp's panels to its own memory.
    template <class T>
    MINIM_DEVICE static void decode(T& t, const TileWarpMemory& memory, const std::byte* weights, int unit) {
        constexpr int k_block_units = Block::block_elems / 32;
        const int panel = t.index() % 32 / static_cast<int>(k_panel_rows);
        const int lane = t.index() % static_cast<int>(k_panel_rows);
        const PanelBlock<Lanes> header = {memory.headers + panel * 64, lane};
        const PanelBlock<Lanes> block = {
            weights + panel * k_second_at +
                unit / k_block_units * Block::block_bytes * static_cast<int>(k_panel_rows),
            lane};
        Unit codes;
        with_unit<P>(unit % k_block_units, [&](auto block_unit) {
            unpack_unit<P, block_unit>(header, block, memory.table, codes);
        });
        TileNumbers<k_numbers> numbers;
        for (int g = 0; g < Kind::k_groups; ++g) {
            numbers.both[g] = twice(t, codes.scale[g]);
            if constexpr (Kind::k_minima) numbers.both[Kind::k_groups + g] = twice(t, codes.minimum[g]);
        }
        t.sync_warp();  // the last unit is done with
        std::byte* row = memory.own + t.index() % 32 * k_row_stride;
        auto* to = reinterpret_cast<SixteenBytes*>(row);
        to[0] = {{codes.code[0], codes.code[1], codes.code[2], codes.code[3]}};
        to[1] = {{codes.code[4], codes.code[5], codes.code[6], codes.code[7]}};
        *reinterpret_cast<TileNumbers<k_numbers>*>(row + k_numbers_at) = numbers;
        t.sync_warp();
    }
    template <class T>
    MINIM_DEVICE static uint32_t twice(T& t, float number) {
        const float scaled = number * k_unpacked_factor;
        return t.pack_f16(scaled, scaled);
    }

    // Makes the fragments of the 16 rows at `rows`.
    template <class T>
    MINIM_DEVICE static void make_fragments(T& t, const std::byte* rows, uint32_t (&a)[2][4]) {
        // A byte is made the lower one of the half 1024 + byte. Signed bytes have 128 added before.
        constexpr bool k_signed = Kind::k_codes == Codes::wide;
        constexpr uint32_t k_zero =
            (0x6400U + (k_signed ? 128U : static_cast<uint32_t>(Kind::k_offset))) * 0x10001U;
        const int lane = t.index() % 32;
        uint32_t codes[4];
        t.load_matrices(codes, rows + lane % 16 * k_row_stride + lane / 16 * 16);
        for (int r = 0; r < 2; ++r) {
            const auto numbers = *reinterpret_cast<const TileNumbers<k_numbers>*>(
                rows + (lane / 4 + 8 * r) * k_row_stride + k_numbers_at);
            for (int k = 0; k < 2; ++k) {
                const int group = Kind::k_groups == 2 ? k : 0;
                const uint32_t four = k_signed ? codes[2 * k + r] ^ 0x80808080U : codes[2 * k + r];
                for (int h = 0; h < 2; ++h) {
                    const uint32_t both =
                        t.subtract_f16(Lanes::permute(four, 0x64646464U, h == 0 ? 0x4140U : 0x4342U), k_zero);
                    if constexpr (Kind::k_minima) {
                        a[k][r + 2 * h] =
                            t.fma_f16(both, numbers.both[group], numbers.both[Kind::k_groups + group]);
                    } else {
                        a[k][r + 2 * h] = t.multiply_f16(both, numbers.both[group]);
                    }
                }
            }
        }
    }
};

}  // namespace minim::cuda::fast
