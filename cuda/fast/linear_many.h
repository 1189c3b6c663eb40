// SPDX-License-Identifier: Apache-2.0
// Multiplies packed weights by many input rows on tensor cores: for prompts, and for the experts of many sequences.
//
// Shape: a block of 256 threads computes a tile of four panels, 64 rows, and up to 64 input rows, 256 columns at a
// time. Its warps decode the weights of a stage, one row in each lane, to signed bytes in shared memory. Then each
// warp computes products of 16 rows by 32 inputs over 32 columns (16 if the format has a scale for 16): exact sums of
// integers, which are scaled and added in float, column group after column group, as everywhere
// (lib/cpu/generic/README.md). Layout: panels of lib/panel/; inputs are Q8Blocks, gathered row by row. In shared
// memory rows of weights are 272 bytes apart and inputs 400, which puts the eight rows of a fragment in different
// banks. Bytes moved: every weight once for 64 inputs, every input once for 64 rows. Bound: instructions, most of
// them for scaling: about 100 for a unit of 16 x 32 x 32 products, 160 with two scales, and a quarter more for
// decoding.
#pragma once

#include "cuda/fast/operations.h"
#include "cuda/fast/panel_dot.h"
#include "cuda/fast/quantize.h"

namespace minim::cuda::fast {

inline constexpr int k_tile_panels = 4;
inline constexpr int k_tile_rows = k_tile_panels * static_cast<int>(k_panel_rows);
inline constexpr int k_tile_threads = 256;

// Where things lie in shared memory.
template <class P>
struct TileSpace {
    using Block = typename P::Block;
    using Kind = typename P::Kind;
    static constexpr int k_raw_bytes = k_tile_panels * k_stage_panel_stride<Block>;
    static constexpr int k_header_bytes = Block::row_header_bytes * static_cast<int>(k_panel_rows);
    static constexpr int k_input_stride = k_stage_units * static_cast<int>(sizeof(Q8Block)) + 16;
    static constexpr int k_row_stride = k_stage_cols + 16;
    static constexpr int k_scales = k_stage_units * Kind::k_groups * k_tile_rows;

    static constexpr int k_inputs_at = 2 * k_raw_bytes;
    static constexpr int k_codes_at = k_inputs_at + k_tile_inputs * k_input_stride;
    static constexpr int k_scales_at = k_codes_at + k_tile_rows * k_row_stride;
    static constexpr int k_minima_at = k_scales_at + 4 * k_scales;
    static constexpr int k_headers_at = k_minima_at + (Kind::k_minima ? 4 * k_scales : 0);
    static constexpr int k_places_at = k_headers_at + 64 * k_tile_panels;
    static constexpr int k_table_at = k_places_at + 8 * k_tile_inputs;
    static constexpr int k_bytes = k_table_at + k_table_bytes<P>;
    static_assert(k_bytes <= k_max_shared_bytes);

    // The finished products: [input][row]. They overwrite inputs and codes.
    static constexpr int k_product_stride = k_tile_rows + 4;
    static_assert(k_tile_inputs * k_product_stride * 4 <= k_scales_at - k_inputs_at);
};

// The work of a block: input i is row `row(i)` of `input`.
struct TileWork {
    const std::byte* panel[k_tile_panels];
    const Q8Block* input;
    int64_t cols;
    int count;                // of inputs
    bool prefetches = false;  // the stages after the first
};

template <class P, class T>
MINIM_DEVICE void copy_weights(T& t, const TileWork& work, int64_t stage, std::byte* to) {
    using Block = typename P::Block;
    const int64_t cols_left = work.cols - stage * k_stage_cols;
    const int cols = cols_left < k_stage_cols ? static_cast<int>(cols_left) : k_stage_cols;
    const int bytes = cols / Block::block_elems * Block::block_bytes * static_cast<int>(k_panel_rows);
    const int64_t first = TileSpace<P>::k_header_bytes + stage * k_stage_panel_bytes<Block>;
    for (int p = 0; p < k_tile_panels; ++p) {
        for (int at = 16 * t.index(); at < bytes; at += 16 * k_tile_threads)
            t.copy_16(to + p * k_stage_panel_stride<Block> + at, work.panel[p] + first + at);
    }
}

template <class P, class T>
MINIM_DEVICE void copy_inputs(T& t, const TileWork& work, const int64_t* place, int64_t stage,
                              std::byte* to) {
    const int64_t units_left = work.cols / 32 - stage * k_stage_units;
    const int units = units_left < k_stage_units ? static_cast<int>(units_left) : k_stage_units;
    const int parts = units * static_cast<int>(sizeof(Q8Block)) / 16;
    for (int i = t.index(); i < work.count * parts; i += k_tile_threads) {
        const int input = i / parts;
        const int at = i % parts * 16;
        const auto* from =
            reinterpret_cast<const std::byte*>(work.input + place[input] + stage * k_stage_units);
        t.copy_16(to + input * TileSpace<P>::k_input_stride + at, from + at);
    }
}

// Decodes the weights of a stage to signed bytes, with their scales and minima. A warp takes one unit of each pair of
// panels.
template <class P, class T>
MINIM_DEVICE void decode_stage(T& t, const std::byte* raw, int n_units, std::byte* shared) {
    using Space = TileSpace<P>;
    using Block = typename P::Block;
    using Kind = typename P::Kind;
    constexpr int k_block_units = Block::block_elems / 32;
    const int unit = t.index() / 32;
    if (unit >= n_units) return;
    auto* scales = reinterpret_cast<float*>(shared + Space::k_scales_at);
    auto* minima = reinterpret_cast<float*>(shared + Space::k_minima_at);
    MINIM_DEVICE_LOOP
    for (int pair = 0; pair < k_tile_panels / 2; ++pair) {
        const int row = pair * 32 + t.index() % 32;
        const int panel = row / static_cast<int>(k_panel_rows);
        const int lane = row % static_cast<int>(k_panel_rows);
        const PanelBlock<Lanes> header = {shared + Space::k_headers_at + 64 * panel, lane};
        const PanelBlock<Lanes> block = {
            raw + panel * k_stage_panel_stride<Block> +
                unit / k_block_units * Block::block_bytes * static_cast<int>(k_panel_rows),
            lane};
        Unit weights;
        with_unit<P>(unit % k_block_units, [&](auto block_unit) {
            unpack_unit<P, block_unit>(header, block, shared + Space::k_table_at, weights);
        });
        if constexpr (Kind::k_codes == Codes::small && Kind::k_offset != 0) {
            for (uint32_t& code : weights.code)
                code = Lanes::add_bytes(code, (256U - static_cast<uint32_t>(Kind::k_offset)) * 0x01010101U);
        }
        auto* codes = reinterpret_cast<SixteenBytes*>(shared + Space::k_codes_at + row * Space::k_row_stride +
                                                      32 * unit);
        codes[0] = {{weights.code[0], weights.code[1], weights.code[2], weights.code[3]}};
        codes[1] = {{weights.code[4], weights.code[5], weights.code[6], weights.code[7]}};
        for (int g = 0; g < Kind::k_groups; ++g) {
            scales[(unit * Kind::k_groups + g) * k_tile_rows + row] = weights.scale[g];
            if constexpr (Kind::k_minima)
                minima[(unit * Kind::k_groups + g) * k_tile_rows + row] = weights.minimum[g];
        }
    }
}

// Adds the products of a stage to sum[j][i]: inputs 8 j + 2 (lane % 4) + i % 2 of the warp's 32, rows lane / 4 + 8 (i / 2)
// of its 16.
template <class P, class T>
MINIM_DEVICE void multiply_stage(T& t, const std::byte* shared, int n_units, int count, float (&sum)[4][4]) {
    using Space = TileSpace<P>;
    using Kind = typename P::Kind;
    const int warp = t.index() / 32;
    const int g = t.index() % 32 / 4;
    const int q = t.index() % 4;
    const int row = warp % 4 * 16 + g;
    const int first_input = warp / 4 * 32;
    const auto* scales = reinterpret_cast<const float*>(shared + Space::k_scales_at);
    const auto* minima = reinterpret_cast<const float*>(shared + Space::k_minima_at);
    const auto word = [&](int at) { return *reinterpret_cast<const uint32_t*>(shared + at); };
    const auto input_float = [&](int input, int at) {
        return *reinterpret_cast<const float*>(shared + Space::k_inputs_at + input * Space::k_input_stride +
                                               at);
    };
    for (int u = 0; u < n_units; ++u) {
        const int at = Space::k_codes_at + row * Space::k_row_stride + 32 * u + 4 * q;
        const uint32_t a[4] = {word(at), word(at + 8 * Space::k_row_stride), word(at + 16),
                               word(at + 8 * Space::k_row_stride + 16)};
        for (int j = 0; j < 4; ++j) {
            const int first = first_input + 8 * j;
            if (first >= count) break;  // the same for the whole warp
            const int input_at = Space::k_inputs_at + (first + g) * Space::k_input_stride + 48 * u + 4 * q;
            const uint32_t b[2] = {word(input_at), word(input_at + 16)};
            for (int group = 0; group < Kind::k_groups; ++group) {
                int32_t dot[4] = {};
                if constexpr (Kind::k_groups == 1) {
                    t.mma_s8(dot, a, b);
                } else {
                    t.mma_s8_16(dot, a[2 * group], a[2 * group + 1], b[group]);
                }
                for (int i = 0; i < 4; ++i) {
                    const int input = first + 2 * q + i % 2;
                    const int of_row = (u * Kind::k_groups + group) * k_tile_rows + row + 8 * (i / 2);
                    const float factor = scales[of_row] * input_float(input, 48 * u + 32);
                    sum[j][i] = Lanes::fma(static_cast<float>(dot[i]), factor, sum[j][i]);
                    if constexpr (Kind::k_minima) {
                        const float scaled =
                            Kind::k_groups == 1
                                ? input_float(input, 48 * u + 36) + input_float(input, 48 * u + 40)
                                : input_float(input, 48 * u + 36 + 4 * group);
                        sum[j][i] = Lanes::fma(minima[of_row], scaled, sum[j][i]);
                    }
                }
            }
        }
    }
}

// Computes the products of a tile in shared memory: [input][row], k_product_stride apart. place(i): the first block of
// input i.
template <class P, class T, class Place>
MINIM_DEVICE const float* multiply_tile(T& t, const TileWork& work, const Place& place_of) {
    using Space = TileSpace<P>;
    std::byte* shared = t.shared();
    auto* place = reinterpret_cast<int64_t*>(shared + Space::k_places_at);
    if (t.index() < work.count) place[t.index()] = place_of(t.index());
    if constexpr (Space::k_header_bytes > 0) {
        constexpr int k_parts = Space::k_header_bytes / 16;
        const int at = t.index() % k_parts * 16;
        for (int p = 0; p < k_tile_panels; ++p) {
            if (t.index() / k_parts == p)
                t.copy_16(shared + Space::k_headers_at + 64 * p + at, work.panel[p] + at);
        }
    }
    copy_table<P>(t, k_tile_threads, shared + Space::k_table_at);
    copy_weights<P>(t, work, 0, shared);
    t.copies_end_group();
    if (work.prefetches) {
        for (const std::byte* panel : work.panel)
            prefetch_panel<typename P::Block>(t, k_tile_threads, panel, work.cols, 1);
    }
    t.wait_for_inputs();
    float sum[4][4] = {};
    const int64_t n_stages = (work.cols + k_stage_cols - 1) / k_stage_cols;
    for (int64_t stage = 0; stage < n_stages; ++stage) {
        t.template copies_wait<0>();
        t.sync();  // this stage's weights are there, the last one's inputs and codes are done with
        copy_inputs<P>(t, work, place, stage, shared + Space::k_inputs_at);
        t.copies_end_group();
        if (stage + 1 < n_stages)
            copy_weights<P>(t, work, stage + 1, shared + (stage + 1) % 2 * Space::k_raw_bytes);
        t.copies_end_group();
        const int64_t units_left = work.cols / 32 - stage * k_stage_units;
        const int n_units = units_left < k_stage_units ? static_cast<int>(units_left) : k_stage_units;
        decode_stage<P>(t, shared + stage % 2 * Space::k_raw_bytes, n_units, shared);
        t.template copies_wait<1>();
        t.sync();
        multiply_stage<P>(t, shared, n_units, work.count, sum);
    }
    t.sync();
    auto* products = reinterpret_cast<float*>(shared + Space::k_inputs_at);
    const int warp = t.index() / 32;
    for (int j = 0; j < 4; ++j) {
        for (int i = 0; i < 4; ++i) {
            const int input = warp / 4 * 32 + 8 * j + t.index() % 4 * 2 + i % 2;
            const int row = warp % 4 * 16 + t.index() % 32 / 4 + 8 * (i / 2);
            products[input * Space::k_product_stride + row] = sum[j][i];
        }
    }
    t.sync();
    return products;
}

// Four panels of one of the products, for 64 input rows.
template <class P>
struct LinearManyKernel {
    static constexpr int k_threads = k_tile_threads;
    static constexpr bool k_starts_early = true;
    static constexpr int k_stride = TileSpace<P>::k_product_stride;

    Products products;
    const Q8Block* input;
    int64_t n;

    Grid grid() const {
        Grid grid = {.n_blocks = 0,
                     .n_blocks_y = (n + k_tile_inputs - 1) / k_tile_inputs,
                     .shared_bytes = TileSpace<P>::k_bytes};
        for (int i = 0; i < products.count; ++i) grid.n_blocks += n_tiles(products.rows[i]);
        return grid;
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        int task = 0;
        int64_t tile = t.block();
        while (tile >= n_tiles(products.rows[task])) tile -= n_tiles(products.rows[task++]);
        const int64_t first_row = tile * k_tile_rows;
        const int64_t rows_left = products.rows[task] - first_row;
        const int rows = rows_left < k_tile_rows ? static_cast<int>(rows_left) : k_tile_rows;
        const int64_t first_input = int64_t{t.block_y()} * k_tile_inputs;
        TileWork work;
        work.input = input;
        work.cols = products.cols;
        work.count = n - first_input < k_tile_inputs ? static_cast<int>(n - first_input) : k_tile_inputs;
        work.prefetches = t.block_y() == 0 && products.prefetches;
        for (int p = 0; p < k_tile_panels; ++p) {
            const int64_t row = p * k_panel_rows < rows ? p * k_panel_rows : 0;
            work.panel[p] = reinterpret_cast<const std::byte*>(products.weight[task]) +
                            (first_row + row) * products.row_bytes;
        }
        const float* values =
            multiply_tile<P>(t, work, [&](int i) { return (first_input + i) * q8_blocks(products.cols); });
        for (int i = t.index(); i < work.count * k_tile_rows; i += k_threads) {
            const int row = i % k_tile_rows;
            if (row >= rows) continue;
            float& y =
                products.y[task][(first_input + i / k_tile_rows) * products.y_stride[task] + first_row + row];
            const float value = values[i / k_tile_rows * k_stride + row] * products.scale[task];
            y = products.add[task] ? y + value : value;
        }
    }

  private:
    MINIM_HOST_DEVICE static int64_t n_tiles(int64_t rows) { return (rows + k_tile_rows - 1) / k_tile_rows; }
};

// 32 rows of the gate and up of the slots of a tile of one expert.
template <class P>
struct ActivateManyKernel {
    static constexpr int k_threads = k_tile_threads;
    static constexpr int k_stride = TileSpace<P>::k_product_stride;

    Experts gate;
    Experts up;
    const Q8Block* h;
    ExpertTiles tiles;
    int64_t n_used;
    Q8Block* activated;

    Grid grid() const { return {gate.rows / 32, tiles.most, TileSpace<P>::k_bytes}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        if (t.block_y() >= *tiles.count) return;
        const ExpertTile tile = tiles.tile[t.block_y()];
        const int32_t* slot = tiles.slot + tile.first;
        const exact::ExpertRows gate_rows = rows_of(gate, tile.expert);
        const exact::ExpertRows up_rows = rows_of(up, tile.expert);
        TileWork work;
        work.input = h;
        work.cols = gate.cols;
        work.count = tile.count;
        for (int half = 0; half < 2; ++half) {
            const int64_t at = (int64_t{t.block()} * 2 + half) * k_panel_rows * gate.row_bytes;
            work.panel[2 * half] = reinterpret_cast<const std::byte*>(gate_rows.data) + at;
            work.panel[2 * half + 1] = reinterpret_cast<const std::byte*>(up_rows.data) + at;
        }
        const float* values = multiply_tile<P>(
            t, work, [&](int i) { return slot[i] / static_cast<int32_t>(n_used) * q8_blocks(gate.cols); });
        const int lane = t.index() % 32;
        const int at = lane / 16 * 32 + lane % 16;
        for (int i = t.index() / 32; i < work.count; i += k_threads / 32) {
            const float g = values[i * k_stride + at] * gate_rows.scale;
            const float u = values[i * k_stride + at + 16] * up_rows.scale;
            quantize_lanes(t, activate_pair(gate.activation, g, u),
                           activated + slot[i] * q8_blocks(gate.rows) + t.block());
        }
    }
};

// Computes 64 rows of a product of one expert, for the slots of a tile.
template <class P>
struct ProjectManyKernel {
    static constexpr int k_threads = k_tile_threads;
    static constexpr int k_stride = TileSpace<P>::k_product_stride;

    Experts experts;
    const Q8Block* input;
    int64_t slots_a_row;  // of the input
    ExpertTiles tiles;
    float* output;

    Grid grid() const {
        return {(packed_rows() + k_tile_rows - 1) / k_tile_rows, tiles.most, TileSpace<P>::k_bytes};
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        if (t.block_y() >= *tiles.count) return;
        const ExpertTile tile = tiles.tile[t.block_y()];
        const int32_t* slot = tiles.slot + tile.first;
        const exact::ExpertRows expert = rows_of(experts, tile.expert);
        const int64_t first_row = int64_t{t.block()} * k_tile_rows;
        const int64_t rows_left = packed_rows() - first_row;
        const int rows = rows_left < k_tile_rows ? static_cast<int>(rows_left) : k_tile_rows;
        TileWork work;
        work.input = input;
        work.cols = experts.cols;
        work.count = tile.count;
        for (int p = 0; p < k_tile_panels; ++p) {
            const int64_t row = p * k_panel_rows < rows ? p * k_panel_rows : 0;
            work.panel[p] =
                reinterpret_cast<const std::byte*>(expert.data) + (first_row + row) * experts.row_bytes;
        }
        const float* values = multiply_tile<P>(t, work, [&](int i) {
            return slot[i] / static_cast<int32_t>(slots_a_row) * q8_blocks(experts.cols);
        });
        for (int i = t.index(); i < work.count * k_tile_rows; i += k_threads) {
            const int row = i % k_tile_rows;
            if (row >= rows) continue;
            output[int64_t{slot[i / k_tile_rows]} * experts.rows + first_row + row] =
                values[i / k_tile_rows * k_stride + row] * expert.scale;
        }
    }

  private:
    MINIM_HOST_DEVICE int64_t packed_rows() const { return experts.rows / k_panel_rows * k_panel_rows; }
};

}  // namespace minim::cuda::fast
