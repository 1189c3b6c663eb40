// SPDX-License-Identifier: Apache-2.0
// Multiplies packed weights, decoded to F16, by many input rows in F16 on tensor cores: for prompts, and for the experts of many
// sequences. Replaces linear_many.h if a GPU shows that it is faster.
//
// Shape: a block of 8 warps computes 256 rows of weights and up to 128 inputs, or one of 4 warps 128 rows and 64 inputs on devices
// that give a block 99 KB; 256 columns of weights at a time, and 128 or fewer of inputs. A warp has two panels, 16 rows each:
// neighbours, or one of gate and one of up, so that a thread has gate and up of the same row and input. A unit of 32 columns:
//
//   1. A lane decodes a row (unpack_unit()), and stores its codes and its scales, as halves times 2^10, in the warp's own memory.
//   2. load_matrices() gives the codes of rows g and g + 8, four neighbouring columns each: the fragments of two products of 16
//      columns, in the order of columns of half_inputs.h.
//   3. Codes become halves with a byte permutation and a subtraction, exactly, and weights with a multiplication.
//   4. multiply_rows() adds the products with all inputs. Sums are floats; they are multiplied by 2^-10, the matrix' and the input's
//      factor at the end.
//
// An input's factors are mostly 1. If those of a tile are not, its sums are in units of the current factor: between two factors they
// are multiplied by the quotient, a power of two, so exactly. The bits of a row therefore do not depend on the rows beside it.
//
// Layout: panels of lib/panel/; inputs in shared memory as multiply_rows() needs them; a warp's rows 48 bytes apart, 32 of codes and
// 16 of scales and minima, so that neither stores nor loads of eight rows meet in a bank. Bytes moved: every weight once for 128
// inputs, every input once for 256 rows. Bound: tensor cores and instructions: for IQ4_XS 275 for a unit and 128 inputs, of which 64
// are products, and 223 for 64 inputs.
#pragma once

#include "cuda/fast/half_inputs.h"
#include "cuda/fast/multiply_rows.h"
#include "cuda/fast/quantize.h"
#include "cuda/fast/tile_kernels.h"
#include "cuda/fast/tile_memory.h"

namespace minim::cuda::fast {

template <class P, class Size>
struct LinearTileKernel {
    using Block = typename P::Block;
    using Kind = typename P::Kind;
    using Memory = TileMemory<P, Size>;
    static constexpr int k_threads = 32 * Size::k_warps;
    static constexpr bool k_starts_early = true;
    static constexpr int k_shared_bytes = Memory::k_bytes;
    static constexpr int k_inputs = Memory::k_inputs;
    static constexpr int k_rows =
        2 * Size::k_warps * static_cast<int>(k_panel_rows);  // of weights, in a block
    static constexpr int k_numbers = k_tile_numbers<Kind>;
    static constexpr int k_stages_of_weights = k_stage_cols / Memory::k_input_cols;
    static constexpr int k_stages_of_factor =
        static_cast<int>(factor_cols(Size::k_size)) / Memory::k_input_cols;
    static constexpr int k_max_units = Memory::k_input_cols / 32;  // of a stage of inputs

    TileCall call;

    Grid grid() const {
        Grid grid = {.shared_bytes = Memory::k_bytes};
        if (call.kind == TileKind::linear) {
            for (int i = 0; i < call.products.count; ++i) grid.n_blocks += blocks_of(call.products.rows[i]);
            grid.n_blocks_y = (call.n + k_inputs - 1) / k_inputs;
        } else {
            const int64_t rows = call.experts.rows / k_panel_rows * k_panel_rows;
            grid.n_blocks = blocks_of(call.kind == TileKind::activate ? 2 * rows : rows);
            grid.n_blocks_y = call.tiles.most;
        }
        return grid;
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        // The experts are known only when the inputs are.
        if (call.kind != TileKind::linear) {
            t.wait_for_inputs();
            if (t.block_y() >= *call.tiles.count) return;
        }
        Sums sum = {};
        const bool has_factors = multiply(t, sum);
        put(t, sum, has_factors);
    }

  private:
    using Sums = float[2][k_inputs / 8][4];

    // What a block computes.
    struct Work {
        const uint8_t* weights;  // of gate and up those of gate
        const uint8_t* up;
        float scale;
        float up_scale;
        int64_t first_row;
        int64_t rows;        // of the matrix
        int count;           // of inputs
        int task;            // of Products
        int32_t first_slot;  // in ExpertTiles::slot
    };
    // The panels of a warp.
    struct Panels {
        const std::byte* first;
        const std::byte* second;
        bool are_there;
    };

    MINIM_HOST_DEVICE static int64_t blocks_of(int64_t rows) { return (rows + k_rows - 1) / k_rows; }

    // Rows of the inputs and of the outputs.
    template <class T>
    MINIM_DEVICE static int32_t* input_rows(T& t) {
        return reinterpret_cast<int32_t*>(t.shared() + Memory::k_rows_at);
    }
    template <class T>
    MINIM_DEVICE static int32_t* output_rows(T& t) {
        return input_rows(t) + k_inputs;
    }

    MINIM_DEVICE Work work_of(int block, int block_y) const {
        Work work = {};
        if (call.kind == TileKind::linear) {
            int64_t of_task = block;
            while (of_task >= blocks_of(call.products.rows[work.task]))
                of_task -= blocks_of(call.products.rows[work.task++]);
            const int64_t inputs_left = call.n - int64_t{block_y} * k_inputs;
            work.count = inputs_left < k_inputs ? static_cast<int>(inputs_left) : k_inputs;
            work.first_row = of_task * k_rows;
            work.rows = call.products.rows[work.task];
            work.scale = call.products.scale[work.task];
            work.weights = call.products.weight[work.task];
            return work;
        }
        const ExpertTile tile = call.tiles.tile[block_y];
        const exact::ExpertRows experts = rows_of(call.experts, tile.expert);
        work.count = tile.count;
        work.first_slot = tile.first;
        work.rows = call.experts.rows / k_panel_rows * k_panel_rows;
        work.first_row = int64_t{block} * k_rows;
        work.scale = experts.scale;
        work.weights = experts.data;
        if (call.kind == TileKind::activate) {
            const exact::ExpertRows up = rows_of(call.up, tile.expert);
            work.first_row = int64_t{block} * (k_rows / 2);
            work.up = up.data;
            work.up_scale = up.scale;
        }
        return work;
    }
    MINIM_DEVICE Panels panels_of(const Work& work, int warp) const {
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
    template <class T>
    MINIM_DEVICE void put_rows(T& t, const Work& work) const {
        for (int i = t.index(); i < work.count; i += k_threads) {
            int32_t row = t.block_y() * k_inputs + i;
            if (call.kind != TileKind::linear) row = call.tiles.slot[work.first_slot + i];
            output_rows(t)[i] = row;
            input_rows(t)[i] =
                call.kind == TileKind::linear ? row : row / static_cast<int32_t>(call.slots_a_row);
        }
    }

    // Adds the products to sum[panel][j][i]: inputs 8 j + 2 (lane % 4) + i % 2, rows lane / 4 + 8 (i / 2) of the warp's panel.
    // Returns whether sums are in units of the input's last factor.
    template <class T>
    MINIM_DEVICE bool multiply(T& t, Sums& sum) const {
        std::byte* shared = t.shared();
        const int warp = t.index() / 32;
        const Work work = work_of(t.block(), t.block_y());
        const Panels panels = panels_of(work, warp);
        const int count = work.count;
        put_rows(t, work);
        std::byte* weights = shared + Memory::k_weights_at + warp * Memory::k_pair_bytes;
        auto* flag = reinterpret_cast<uint32_t*>(shared + Memory::k_flag_at);
        if (t.index() == 0) *flag = 0;
        copy_table<P>(t, k_threads, shared + Memory::k_table_at);
        copy_headers(t, panels);
        copy_weights(t, panels, 0, weights);
        t.copies_end_group();
        if (call.kind == TileKind::linear) t.wait_for_inputs();
        t.sync();  // rows and flag are there
        copy_inputs(t, count, 0, shared);
        t.copies_end_group();
        if (meets_factor(t, count)) *flag = 1;
        const auto n_units = static_cast<int>(call.cols / 32);
        const int n_stages = (n_units + k_max_units - 1) / k_max_units;
        bool has_factors = false;
        MINIM_DEVICE_LOOP
        for (int stage = 0; stage < n_stages; ++stage) {
            // The weights of the next 256 columns, started one stage ago, may still be under way.
            if (stage % k_stages_of_weights == 1) {
                t.template copies_wait<1>();
            } else {
                t.template copies_wait<0>();
            }
            t.sync();  // this stage is there, and the last one is done with
            const int part = stage / k_stages_of_weights;
            if (stage + 1 < n_stages)
                copy_inputs(t, count, stage + 1, shared + (stage + 1) % 2 * Memory::k_input_bytes);
            t.copies_end_group();
            if (stage % k_stages_of_weights == 0) {
                copy_weights(t, panels, part + 1, weights + (part + 1) % 2 * Memory::k_weight_bytes);
                t.copies_end_group();
            }
            if (stage == 0) has_factors = *flag != 0;
            if (has_factors && stage > 0 && stage % k_stages_of_factor == 0)
                change_factors(t, count, stage / k_stages_of_factor, sum);
            if (!panels.are_there) continue;
            const int units_left = n_units - stage * k_max_units;
            multiply_stage(t, weights + part % 2 * Memory::k_weight_bytes,
                           shared + stage % 2 * Memory::k_input_bytes,
                           stage % k_stages_of_weights * k_max_units,
                           units_left < k_max_units ? units_left : k_max_units, count, sum);
        }
        return has_factors;
    }

    template <class T>
    MINIM_DEVICE void copy_headers(T& t, const Panels& panels) const {
        if constexpr (Memory::k_header_bytes > 0) {
            std::byte* to = t.shared() + Memory::k_headers_at + t.index() / 32 * 2 * 64;
            const int at = t.index() % 32 * 16;
            if (!panels.are_there || at >= Memory::k_header_bytes) return;
            t.copy_16(to + at, panels.first + at);
            t.copy_16(to + 64 + at, panels.second + at);
        }
    }

    // Each warp copies its own panels.
    template <class T>
    MINIM_DEVICE void copy_weights(T& t, const Panels& panels, int part, std::byte* to) const {
        const int64_t cols_left = call.cols - int64_t{part} * k_stage_cols;
        if (!panels.are_there || cols_left <= 0) return;
        const int cols = cols_left < k_stage_cols ? static_cast<int>(cols_left) : k_stage_cols;
        const int bytes = cols / Block::block_elems * Block::block_bytes * static_cast<int>(k_panel_rows);
        const int64_t first = Memory::k_header_bytes + int64_t{part} * Memory::k_panel_bytes;
        for (int at = 16 * (t.index() % 32); at < bytes; at += 16 * 32) {
            t.copy_16(to + at, panels.first + first + at);
            t.copy_16(to + Memory::k_second_at + at, panels.second + first + at);
        }
    }

    // A warp copies eight inputs at a time, 64 neighbouring bytes of each: to shared memory 128 neighbouring bytes.
    template <class T>
    MINIM_DEVICE void copy_inputs(T& t, int count, int stage, std::byte* to) const {
        const int64_t first = int64_t{stage} * Memory::k_input_cols;
        const int64_t cols_left = call.cols - first;
        const int cols =
            cols_left < Memory::k_input_cols ? static_cast<int>(cols_left) : Memory::k_input_cols;
        const int lane = t.index() % 32;
        for (int i = t.index() / 32 * 8 + lane % 8; i < count; i += 8 * Size::k_warps) {
            const uint16_t* from = call.input.half + input_rows(t)[i] * call.cols + first;
            for (int c = lane / 8 * 8; c < cols; c += 32) t.copy_16(to + row_place<k_inputs>(i, c), from + c);
        }
    }

    // Returns whether one of the factors that this thread looks at is not 1.
    template <class T>
    MINIM_DEVICE bool meets_factor(T& t, int count) const {
        const auto n = static_cast<int>(n_factors(call.cols, Size::k_size));
        bool meets = false;
        MINIM_DEVICE_LOOP
        for (int i = t.index(); i < count * n; i += k_threads)
            meets = meets || call.input.factor[input_rows(t)[i / n] * int64_t{n} + i % n] != 1.0F;
        return meets;
    }
    // Changes the sums from the factor before `to` to that one. All threads of the block call it.
    template <class T>
    MINIM_DEVICE void change_factors(T& t, int count, int to, Sums& sum) const {
        auto* quotients = reinterpret_cast<float*>(t.shared() + Memory::k_quotients_at);
        for (int i = t.index(); i < k_inputs; i += k_threads) {
            float quotient = 1.0F;
            if (i < count) {
                const float* factor =
                    call.input.factor + input_rows(t)[i] * n_factors(call.cols, Size::k_size) + to;
                quotient = bits_to_float(float_to_bits(factor[-1]) - float_to_bits(factor[0]) + (127U << 23));
            }
            quotients[i] = quotient;
        }
        t.sync();
        MINIM_DEVICE_UNROLLED
        for (int j = 0; j < k_inputs / 8; ++j) {
            const auto both = *reinterpret_cast<const TwoFloats*>(quotients + 8 * j + t.index() % 4 * 2);
            for (int p = 0; p < 2; ++p)
                for (int i = 0; i < 4; ++i) sum[p][j][i] *= both.x[i % 2];
        }
    }

    // Multiplies n_units units from `first_unit` of a stage of weights on.
    template <class T>
    MINIM_DEVICE void multiply_stage(T& t, const std::byte* weights, const std::byte* inputs, int first_unit,
                                     int n_units, int count, Sums& sum) const {
        std::byte* own = t.shared() + Memory::k_own_at + t.index() / 32 * Memory::k_own_bytes;
        MINIM_DEVICE_LOOP
        for (int u = 0; u < n_units; ++u) {
            decode(t, weights, first_unit + u, own);
            uint32_t a[2][2][4];
            for (int p = 0; p < 2; ++p) make_fragments(t, own + 16 * p * Memory::k_row_stride, a[p]);
            t.template multiply_rows<k_inputs>(sum, a, inputs + row_place<k_inputs>(0, 32 * u), count);
        }
    }

    // Decodes a unit of the warp's panels to its own memory.
    template <class T>
    MINIM_DEVICE void decode(T& t, const std::byte* weights, int unit, std::byte* own) const {
        constexpr int k_block_units = Block::block_elems / 32;
        const int panel = t.index() % 32 / static_cast<int>(k_panel_rows);
        const int lane = t.index() % static_cast<int>(k_panel_rows);
        const PanelBlock<Lanes> header = {
            t.shared() + Memory::k_headers_at + (t.index() / 32 * 2 + panel) * 64, lane};
        const PanelBlock<Lanes> block = {
            weights + panel * Memory::k_second_at +
                unit / k_block_units * Block::block_bytes * static_cast<int>(k_panel_rows),
            lane};
        Unit codes;
        with_unit<P>(unit % k_block_units, [&](auto block_unit) {
            unpack_unit<P, block_unit>(header, block, t.shared() + Memory::k_table_at, codes);
        });
        TileNumbers<k_numbers> numbers;
        for (int g = 0; g < Kind::k_groups; ++g) {
            numbers.both[g] = twice(t, codes.scale[g]);
            if constexpr (Kind::k_minima) numbers.both[Kind::k_groups + g] = twice(t, codes.minimum[g]);
        }
        t.sync_warp();  // the last unit is done with
        std::byte* row = own + t.index() % 32 * Memory::k_row_stride;
        auto* to = reinterpret_cast<SixteenBytes*>(row);
        to[0] = {{codes.code[0], codes.code[1], codes.code[2], codes.code[3]}};
        to[1] = {{codes.code[4], codes.code[5], codes.code[6], codes.code[7]}};
        *reinterpret_cast<TileNumbers<k_numbers>*>(row + Memory::k_numbers_at) = numbers;
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
        t.load_matrices(codes, rows + lane % 16 * Memory::k_row_stride + lane / 16 * 16);
        for (int r = 0; r < 2; ++r) {
            const auto numbers = *reinterpret_cast<const TileNumbers<k_numbers>*>(
                rows + (lane / 4 + 8 * r) * Memory::k_row_stride + Memory::k_numbers_at);
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

    // Returns the factor of an input's sums. It is a power of two.
    template <class T>
    MINIM_DEVICE float factor_of(T& t, int input, bool has_factors) const {
        if (!has_factors) return 1.0F / k_unpacked_factor;
        const int64_t n = n_factors(call.cols, Size::k_size);
        return call.input.factor[input_rows(t)[input] * n + n - 1] / k_unpacked_factor;
    }

    // Writes the results, by half of the inputs.
    template <class T>
    MINIM_DEVICE void put(T& t, const Sums& sum, bool has_factors) const {
        auto* values = reinterpret_cast<float*>(t.shared());
        const Work work = work_of(t.block(), t.block_y());
        const int lane = t.index() % 32;
        float* own = values + lane % 4 * 2 * Memory::k_sum_stride + t.index() / 32 * 32 + lane / 4;
        MINIM_DEVICE_UNROLLED
        for (int half = 0; half < 2; ++half) {
            if (half * k_inputs / 2 >= work.count) break;
            t.sync();  // what lies there is done with
            MINIM_DEVICE_UNROLLED
            for (int j = 0; j < k_inputs / 16; ++j) {
                for (int p = 0; p < 2; ++p) {
                    for (int i = 0; i < 4; ++i)
                        own[(8 * j + i % 2) * Memory::k_sum_stride + 16 * p + i / 2 * 8] =
                            sum[p][half * k_inputs / 16 + j][i];
                }
            }
            t.sync();
            put_half(t, work, values, half * k_inputs / 2, has_factors);
        }
    }

    // A warp takes an input at a time. In its sums 16 rows of each warp's first panel are followed by those of the second.
    template <class T>
    MINIM_DEVICE void put_half(T& t, const Work& work, const float* values, int first,
                               bool has_factors) const {
        const int64_t rows_left = work.rows - work.first_row;
        MINIM_DEVICE_LOOP
        for (int i = t.index() / 32; i < k_inputs / 2 && first + i < work.count; i += Size::k_warps) {
            const float* sums = values + i * Memory::k_sum_stride;
            const float factor = factor_of(t, first + i, has_factors);
            const int64_t row = output_rows(t)[first + i];
            if (call.kind == TileKind::activate) {
                const int64_t n = n_factors(work.rows, Size::k_size);
                const auto activated = [&](int r) {
                    const float* both = sums + r / 16 * 32 + r % 16;
                    return activate_pair(call.experts.activation, both[0] * factor * work.scale,
                                         both[16] * factor * work.up_scale);
                };
                put_halves<k_rows / 2>(t, activated,
                                       rows_left < k_rows / 2 ? static_cast<int>(rows_left) : k_rows / 2,
                                       call.activated.half + row * work.rows + work.first_row,
                                       call.activated.factor + row * n + t.block());
                continue;
            }
            const bool is_linear = call.kind == TileKind::linear;
            float* y = is_linear ? call.products.y[work.task] + row * call.products.y_stride[work.task]
                                 : call.output + row * call.experts.rows;
            y += work.first_row;
            const bool adds = is_linear && call.products.add[work.task];
            for (int r = t.index() % 32; r < k_rows && r < rows_left; r += 32) {
                const float value = sums[r] * factor * work.scale;
                y[r] = adds ? y[r] + value : value;
            }
        }
    }
};

}  // namespace minim::cuda::fast
