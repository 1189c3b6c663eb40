// SPDX-License-Identifier: Apache-2.0
// Multiplies F16, BF16 and FP8_E4M3_B128 weights by many input rows on tensor cores: for prompts, and for the experts
// of many sequences.
//
// Shape: a block of 256 threads computes a tile of 64 rows and up to 64 inputs, 128 columns at a time. FP8 codes are
// converted to F16 between shared memory and the tensor cores: exponent and mantissa are only shifted, exactly, to
// numbers 256 times too small. F16 and BF16 are used as they are. A warp computes 16 rows by 32 inputs; the tensor
// cores sum the products of 128 columns, which are scaled by the weights' and the input's scale and added in float,
// 128 columns after 128 columns. Layout: rows as in the file; inputs are HalfBlocks, gathered row by row. In shared
// memory rows of FP8 are 160 bytes apart, rows of halves and inputs 272, which puts the rows of a fragment in
// different banks; in each eight words of FP8 codes, j and j + 4 are neighbours, because a lane needs both. Bytes
// moved: every weight once for 64 inputs, every input once for 64 rows. Bound: instructions; for the eight tensor core
// products of 16 x 32 x 32 about 60 with FP8, of which 28 convert codes to F16, and 35 with halves.
#pragma once

#include "cuda/fast/device.h"
#include "cuda/fast/operations.h"
#include "cuda/fast/quantize.h"
#include "format/fp8_e4m3_b128.h"
#include "format/plain.h"

namespace minim::cuda::fast {

inline constexpr int k_half_threads = 256;
inline constexpr int k_half_rows = 64;  // of weights, in a tile
inline constexpr int k_half_cols = 128;
inline constexpr int k_half_warp_rows = 16;

// A fragment of weights: 16 rows and 32 columns, of which the tensor cores take the first and the last 16.
struct HalfFragment {
    uint32_t low[4];
    uint32_t high[4];
};

// What depends on the format: how k_half_cols columns of a tile's rows pass through shared memory.
//
//   k_row_stride                         between rows there, in bytes
//   copy(t, row_of, stage, to)           starts copying columns stage * 128 on; row_of(r): the weights of the tile's row r
//   fragment(t, rows, u)                 columns 32 u on of the warp's 16 rows; `rows`: the first of these
//   scale(row)                           of the 128 columns of a row
//   multiply(t, c, a, b)                 c += a b, on tensor cores
template <class Block>
struct HalfWeights {
    static_assert(Block::block_elems == 1 && Block::block_bytes == 2);
    static constexpr int k_row_stride = 2 * k_half_cols + 16;

    template <class T, class RowOf>
    MINIM_DEVICE static void copy(T& t, const RowOf& row_of, int64_t stage, std::byte* to) {
        constexpr int k_pieces = 2 * k_half_cols / 16;
        MINIM_DEVICE_LOOP
        for (int i = t.index(); i < k_half_rows * k_pieces; i += k_half_threads) {
            const int row = i / k_pieces;
            const int at = i % k_pieces * 16;
            t.copy_16(to + row * k_row_stride + at, row_of(row) + stage * (2 * k_half_cols) + at);
        }
    }
    template <class T>
    MINIM_DEVICE static HalfFragment fragment(T& t, const std::byte* rows, int u) {
        const int lane = t.index() % 32;
        const std::byte* from = rows + lane % 16 * k_row_stride + 64 * u + 16 * (lane / 16);
        HalfFragment a;
        t.load_matrices(a.low, from);
        t.load_matrices(a.high, from + 32);
        return a;
    }
    MINIM_DEVICE static float scale(const std::byte* /*row*/) { return 1.0F; }
    template <class T>
    MINIM_DEVICE static void multiply(T& t, float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
        if constexpr (Block::format == Format::bf16) {
            t.mma_bf16(c, a, b);
        } else {
            t.mma_f16(c, a, b);
        }
    }
};

template <>
struct HalfWeights<FP8_E4M3_B128> {
    using Block = FP8_E4M3_B128;
    static_assert(Block::block_elems == k_half_cols);
    static constexpr int k_row_stride = 160;
    static constexpr int k_scale_at = 128;  // in a row, behind its codes

    template <class T, class RowOf>
    MINIM_DEVICE static void copy(T& t, const RowOf& row_of, int64_t stage, std::byte* to) {
        const int warp = t.index() / 32;
        const int lane = t.index() % 32;
        const int word_at = lane / 8 * 32 + lane % 4 * 8 + lane % 8 / 4 * 4;
        // Unrolled, the addresses of eight rows would take the registers of a third block.
        MINIM_DEVICE_LOOP
        for (int k = 0; k < k_half_rows / 8; ++k) {
            const int row = warp * (k_half_rows / 8) + k;
            t.copy_4(to + row * k_row_stride + word_at,
                     row_of(row) + stage * Block::block_bytes + Block::codes_at + 4 * lane);
        }
        if (t.index() < k_half_rows) {
            t.copy_4(to + t.index() * k_row_stride + k_scale_at,
                     row_of(t.index()) + stage * Block::block_bytes + Block::scale_at);
        }
    }
    template <class T>
    MINIM_DEVICE static HalfFragment fragment(T& t, const std::byte* rows, int u) {
        struct alignas(8) Words {
            uint32_t low, high;  // j and j + 4
        };
        const int lane = t.index() % 32;
        const std::byte* from = rows + lane / 4 * k_row_stride + 32 * u + 8 * (lane % 4);
        const auto& first = *reinterpret_cast<const Words*>(from);
        const auto& second = *reinterpret_cast<const Words*>(from + 8 * k_row_stride);
        const uint32_t word[4] = {first.low, second.low, first.high, second.high};
        HalfFragment a;
        for (int k = 0; k < 4; ++k) {
            a.low[k] = e4m3_as_halves_even(word[k]);
            a.high[k] = e4m3_as_halves_odd(word[k]);
        }
        return a;
    }
    MINIM_DEVICE static float scale(const std::byte* row) {
        return k_e4m3_half_factor * *reinterpret_cast<const float*>(row + k_scale_at);
    }
    template <class T>
    MINIM_DEVICE static void multiply(T& t, float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
        t.mma_f16(c, a, b);
    }
};

template <class Block>
struct HalfTile {
    static constexpr int k_row_stride = HalfWeights<Block>::k_row_stride;
    static constexpr int k_input_stride = static_cast<int>(sizeof(HalfBlock));
    static constexpr int k_inputs_at = k_half_rows * k_row_stride;
    static constexpr int k_stage_bytes = k_inputs_at + k_tile_inputs * k_input_stride;
    static constexpr int k_places_at = 2 * k_stage_bytes;
    static constexpr int k_bytes = k_places_at + 8 * k_tile_inputs;
    static_assert(k_bytes <= k_max_shared_bytes);
};

// A lane's products of a tile: rows `row` (sum[j][0], sum[j][1]) and `row` + 8 (sum[j][2], sum[j][3]) with inputs
// `input` + 8 j and `input` + 8 j + 1.
struct HalfSums {
    int row;
    int input;
    float sum[4][4];
};

// Rows of a matrix from `first` on. Rows of a tile beyond the last row of the matrix repeat the last one.
struct HalfRows {
    const uint8_t* first;
    int64_t row_bytes;
    int64_t last;

    MINIM_DEVICE const uint8_t* operator()(int row) const {
        return first + (row < last ? row : last) * row_bytes;
    }
};

// Calls use(input, row, product) for the lane's products of the first `count` inputs and of rows up to `last_row`.
template <class Use>
MINIM_DEVICE void for_each_half_product(const HalfSums& own, int count, int64_t last_row, const Use& use) {
    for (int j = 0; j < 4; ++j) {
        for (int i = 0; i < 4; ++i) {
            const int input = own.input + 8 * j + i % 2;
            const int row = own.row + 8 * (i / 2);
            if (input < count && row <= last_row) use(input, row, own.sum[j][i]);
        }
    }
}

// Starts copying 128 columns of a tile.
template <class Block, class T, class RowOf>
MINIM_DEVICE void copy_half_stage(T& t, const RowOf& row_of, const HalfBlock* input, const int64_t* place,
                                  int count, int64_t stage, std::byte* to) {
    using Tile = HalfTile<Block>;
    HalfWeights<Block>::copy(t, row_of, stage, to);
    // Half a warp copies the halves of an input, and a thread its scale.
    for (int i = t.index() / 16; i < count; i += k_half_threads / 16) {
        const int at = t.index() % 16 * 16;
        t.copy_16(to + Tile::k_inputs_at + i * Tile::k_input_stride + at,
                  reinterpret_cast<const std::byte*>(input + place[i] + stage) + at);
    }
    if (t.index() < count) {
        t.copy_16(to + Tile::k_inputs_at + t.index() * Tile::k_input_stride + 256,
                  &input[place[t.index()] + stage].scale);
    }
}

template <class Block, class T>
MINIM_DEVICE void multiply_half_stage(T& t, const std::byte* stage, int count, HalfSums& own) {
    using Tile = HalfTile<Block>;
    using Weights = HalfWeights<Block>;
    const int lane = t.index() % 32;
    const int first_input = own.input - 2 * (lane % 4);
    const std::byte* rows = stage + (own.row - lane / 4) * Tile::k_row_stride;
    const auto input_at = [&](int input) { return stage + Tile::k_inputs_at + input * Tile::k_input_stride; };
    float dot[4][4] = {};
    for (int u = 0; u < k_half_cols / 32; ++u) {
        const HalfFragment a = Weights::fragment(t, rows, u);
        for (int j = 0; j < 4; ++j) {
            if (first_input + 8 * j >= count) break;  // the same for the whole warp
            uint32_t b[4];
            t.load_matrices(b, input_at(first_input + 8 * j + lane % 8) + 64 * u + 16 * (lane / 8));
            const uint32_t b_low[2] = {b[0], b[1]};
            const uint32_t b_high[2] = {b[2], b[3]};
            Weights::multiply(t, dot[j], a.low, b_low);
            Weights::multiply(t, dot[j], a.high, b_high);
        }
    }
    float scale[2];
    for (int k = 0; k < 2; ++k) scale[k] = Weights::scale(stage + (own.row + 8 * k) * Tile::k_row_stride);
    for (int j = 0; j < 4; ++j) {
        if (first_input + 8 * j >= count) break;
        for (int i = 0; i < 4; ++i) {
            const float of_input = *reinterpret_cast<const float*>(input_at(own.input + 8 * j + i % 2) + 256);
            own.sum[j][i] = fmaf(dot[j][i], scale[i / 2] * of_input, own.sum[j][i]);
        }
    }
}

// Returns a lane's products of 64 rows and `count` inputs. row_of(r): the weights of row r; place_of(i): the first
// block of input i.
template <class Block, class T, class RowOf, class PlaceOf>
MINIM_DEVICE HalfSums multiply_half_tile(T& t, const RowOf& row_of, const HalfBlock* input,
                                         const PlaceOf& place_of, int count, int64_t cols) {
    using Tile = HalfTile<Block>;
    std::byte* shared = t.shared();
    auto* place = reinterpret_cast<int64_t*>(shared + Tile::k_places_at);
    if (t.index() < count) place[t.index()] = place_of(t.index());
    t.sync();
    const int warp = t.index() / 32;
    const int lane = t.index() % 32;
    HalfSums own = {warp % 4 * k_half_warp_rows + lane / 4, warp / 4 * 32 + lane % 4 * 2, {}};
    const int64_t n_stages = cols / k_half_cols;
    copy_half_stage<Block>(t, row_of, input, place, count, 0, shared);
    t.copies_end_group();
    for (int64_t stage = 0; stage < n_stages; ++stage) {
        if (stage + 1 < n_stages)
            copy_half_stage<Block>(t, row_of, input, place, count, stage + 1,
                                   shared + (stage + 1) % 2 * Tile::k_stage_bytes);
        t.copies_end_group();
        t.template copies_wait<1>();
        t.sync();
        multiply_half_stage<Block>(t, shared + stage % 2 * Tile::k_stage_bytes, count, own);
        t.sync();  // before the next but one is copied over it
    }
    return own;
}

template <class Block>
struct LinearHalfManyKernel {
    static constexpr int k_threads = k_half_threads;

    Weight weight;
    const HalfBlock* x;
    int64_t n;
    float* y;
    bool add;

    Grid grid() const {
        return {(weight.rows + k_half_rows - 1) / k_half_rows, (n + k_tile_inputs - 1) / k_tile_inputs,
                HalfTile<Block>::k_bytes};
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t first_row = int64_t{t.block()} * k_half_rows;
        const int64_t first = int64_t{t.block_y()} * k_tile_inputs;
        const int count = n - first < k_tile_inputs ? static_cast<int>(n - first) : k_tile_inputs;
        const HalfRows rows = {weight.data + first_row * weight.row_bytes, weight.row_bytes,
                               weight.rows - 1 - first_row};
        const int64_t n_blocks = weight.cols / k_half_cols;
        const HalfSums own = multiply_half_tile<Block>(
            t, rows, x, [&](int i) { return (first + i) * n_blocks; }, count, weight.cols);
        for_each_half_product(own, count, rows.last, [&](int input, int row, float product) {
            float& out = y[(first + input) * weight.rows + first_row + row];
            const float value = product * weight.scale;
            out = add ? out + value : value;
        });
    }
};

// 32 rows of silu(gate h) * (up h) of the slots of a tile of one expert. A warp's 16 rows are eight of gate and the eight of
// up beside them, so that a lane has both products of an element.
template <class Block>
struct ActivateHalfManyKernel {
    static constexpr int k_threads = k_half_threads;
    static constexpr int k_rows = k_half_rows / 2;

    Experts gate;
    Experts up;
    const HalfBlock* h;
    ExpertTiles tiles;
    int64_t n_used;
    float* activated;  // [n_slots, rows]

    Grid grid() const { return {(gate.rows + k_rows - 1) / k_rows, tiles.most, HalfTile<Block>::k_bytes}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        if (t.block_y() >= *tiles.count) return;
        const ExpertTile tile = tiles.tile[t.block_y()];
        const int32_t* slot = tiles.slot + tile.first;
        const int64_t first_row = int64_t{t.block()} * k_rows;
        const int64_t last_row = gate.rows - 1 - first_row;
        const exact::ExpertRows gate_of = rows_of(gate, tile.expert);
        const exact::ExpertRows up_of = rows_of(up, tile.expert);
        const HalfRows gate_rows = {gate_of.data + first_row * gate.row_bytes, gate.row_bytes, last_row};
        const HalfRows up_rows = {up_of.data + first_row * up.row_bytes, up.row_bytes, last_row};
        const auto row_of = [&](int of_tile) {
            return of_tile % 16 < 8 ? gate_rows(row_of_pair(of_tile)) : up_rows(row_of_pair(of_tile));
        };
        const int64_t n_blocks = gate.cols / k_half_cols;
        const HalfSums own = multiply_half_tile<Block>(
            t, row_of, h, [&](int i) { return slot[i] / static_cast<int32_t>(n_used) * n_blocks; },
            tile.count, gate.cols);
        const int row = row_of_pair(own.row);
        if (row > last_row) return;
        for (int j = 0; j < 4; ++j) {
            for (int i = 0; i < 2; ++i) {
                const int input = own.input + 8 * j + i;
                if (input >= tile.count) continue;
                activated[slot[input] * gate.rows + first_row + row] = activate_pair(
                    gate.activation, own.sum[j][i] * gate_of.scale, own.sum[j][i + 2] * up_of.scale);
            }
        }
    }

  private:
    // Returns the row of gate or up that is row `of_tile` of the tile.
    MINIM_HOST_DEVICE static int row_of_pair(int of_tile) { return of_tile / 16 * 8 + of_tile % 8; }
};

// 64 rows of the products of the slots of a tile of one expert.
template <class Block>
struct ProjectHalfManyKernel {
    static constexpr int k_threads = k_half_threads;

    Experts experts;
    const HalfBlock* x;
    int64_t slots_a_row;  // of x
    ExpertTiles tiles;
    float* y;  // [n_slots, rows]

    Grid grid() const {
        return {(experts.rows + k_half_rows - 1) / k_half_rows, tiles.most, HalfTile<Block>::k_bytes};
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        if (t.block_y() >= *tiles.count) return;
        const ExpertTile tile = tiles.tile[t.block_y()];
        const int32_t* slot = tiles.slot + tile.first;
        const int64_t first_row = int64_t{t.block()} * k_half_rows;
        const exact::ExpertRows expert = rows_of(experts, tile.expert);
        const HalfRows rows = {expert.data + first_row * experts.row_bytes, experts.row_bytes,
                               experts.rows - 1 - first_row};
        const int64_t n_blocks = experts.cols / k_half_cols;
        const HalfSums own = multiply_half_tile<Block>(
            t, rows, x, [&](int i) { return slot[i] / static_cast<int32_t>(slots_a_row) * n_blocks; },
            tile.count, experts.cols);
        for_each_half_product(own, tile.count, rows.last, [&](int input, int row, float product) {
            y[slot[input] * experts.rows + first_row + row] = product * expert.scale;
        });
    }
};

}  // namespace minim::cuda::fast
