// SPDX-License-Identifier: Apache-2.0
// Multiplies weights by many input rows in F16 or BF16 on tensor cores: for prompts, and for the experts of many sequences. Packed weights
// are decoded to F16 (tile_panels.h); F16, BF16 and FP8 are used as they are in the file (tile_rows.h). Replaces linear_many.h and
// linear_half_many.h if a GPU shows that it is faster.
//
// Shape: a block of 8 warps computes 256 rows of weights and up to 128 inputs, or one of 4 warps 128 rows and 64 inputs on devices
// that give a block 99 KB; 256 columns of packed weights or 128 of others at a time, and 128 or fewer of inputs. A warp has two times 16
// rows: neighbours, or those of gate and of up, so that a thread has gate and up of the same row and input. Sums are floats; they are
// multiplied by the matrix' and the input's factor at the end.
//
// An input's factors are mostly 1. If those of a tile are not, its sums are in units of the current factor: between two factors they
// are multiplied by the quotient, a power of two, so exactly. The bits of a row therefore do not depend on the rows beside it.
//
// Layout: inputs in shared memory as multiply_rows() needs them. Bytes moved: every weight once for 128 inputs, every input once for 256
// rows. Bound: tensor cores and instructions: for IQ4_XS 275 for a unit and 128 inputs, of which 64 are products, and 223 for 64 inputs.
#pragma once

#include "cuda/fast/half_inputs.h"
#include "cuda/fast/multiply_rows.h"
#include "cuda/fast/quantize.h"
#include "cuda/fast/tile_kernels.h"
#include "cuda/fast/tile_memory.h"

namespace minim::cuda::fast {

// Weights: TilePanels or TileRows.
template <class Weights, class Size>
struct LinearTileKernel {
    using Memory = TileMemory<Weights, Size>;
    using Source = typename Weights::Source;
    static constexpr int k_threads = 32 * Size::k_warps;
    static constexpr bool k_starts_early = true;
    static constexpr int k_shared_bytes = Memory::k_bytes;
    static constexpr int k_inputs = Memory::k_inputs;
    static constexpr int k_rows =
        2 * Size::k_warps * static_cast<int>(k_panel_rows);  // of weights, in a block
    static constexpr int k_stages_of_weights = Weights::k_cols / Memory::k_input_cols;
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
            const int64_t rows = Weights::computed_rows(call.experts.rows);
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

    MINIM_DEVICE TileTask work_of(int block, int block_y) const {
        TileTask work = {};
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
        work.rows = Weights::computed_rows(call.experts.rows);
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
    template <class T>
    MINIM_DEVICE void put_rows(T& t, const TileTask& work) const {
        for (int i = t.index(); i < work.count; i += k_threads) {
            int32_t row = t.block_y() * k_inputs + i;
            if (call.kind != TileKind::linear) row = call.tiles.slot[work.first_slot + i];
            output_rows(t)[i] = row;
            input_rows(t)[i] =
                call.kind == TileKind::linear ? row : row / static_cast<int32_t>(call.slots_a_row);
        }
    }

    // Adds the products to sum[panel][j][i]: inputs 8 j + 2 (lane % 4) + i % 2, rows lane / 4 + 8 (i / 2) of 16 of the warp.
    // Returns whether sums are in units of the input's last factor.
    template <class T>
    MINIM_DEVICE bool multiply(T& t, Sums& sum) const {
        std::byte* shared = t.shared();
        const int warp = t.index() / 32;
        const TileTask work = work_of(t.block(), t.block_y());
        const Source source = Weights::source_of(call, work, warp);
        const int count = work.count;
        put_rows(t, work);
        std::byte* weights = shared + Memory::k_weights_at + warp * Weights::k_warp_bytes;
        std::byte* headers = shared + Memory::k_headers_at + warp * Weights::k_headers_bytes;
        const TileWarpMemory memory = {shared + Memory::k_own_at + warp * Weights::k_own_bytes, headers,
                                       shared + Memory::k_table_at};
        auto* flag = reinterpret_cast<uint32_t*>(shared + Memory::k_flag_at);
        if (t.index() == 0) *flag = 0;
        Weights::copy_table(t, k_threads, shared + Memory::k_table_at);
        Weights::copy_headers(t, source, headers);
        Weights::copy(t, source, call.cols, 0, weights);
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
            // The weights of the next columns, started one stage ago, may still be under way.
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
                Weights::copy(t, source, call.cols, part + 1,
                              weights + (part + 1) % 2 * Memory::k_weight_bytes);
                t.copies_end_group();
            }
            if (stage == 0) has_factors = *flag != 0;
            if (has_factors && stage > 0 && stage % k_stages_of_factor == 0)
                change_factors(t, count, stage / k_stages_of_factor, sum);
            if (!source.are_there) continue;
            const int units_left = n_units - stage * k_max_units;
            Weights::template multiply<k_inputs>(
                t, memory, weights + part % 2 * Memory::k_weight_bytes,
                shared + stage % 2 * Memory::k_input_bytes, stage % k_stages_of_weights * k_max_units,
                units_left < k_max_units ? units_left : k_max_units, count, sum);
        }
        return has_factors;
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

    // Returns the factor of an input's sums. It is a power of two.
    template <class T>
    MINIM_DEVICE float factor_of(T& t, int input, bool has_factors) const {
        if (!has_factors) return 1.0F / Weights::k_factor;
        const int64_t n = n_factors(call.cols, Size::k_size);
        return call.input.factor[input_rows(t)[input] * n + n - 1] / Weights::k_factor;
    }

    // Writes the results, by half of the inputs.
    template <class T>
    MINIM_DEVICE void put(T& t, const Sums& sum, bool has_factors) const {
        auto* values = reinterpret_cast<float*>(t.shared());
        const TileTask work = work_of(t.block(), t.block_y());
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

    // A warp takes an input at a time. In its sums the first 16 rows of each warp are followed by the second ones.
    template <class T>
    MINIM_DEVICE void put_half(T& t, const TileTask& work, const float* values, int first,
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
                put_halves<k_rows / 2, Weights::k_halves>(
                    t, activated, rows_left < k_rows / 2 ? static_cast<int>(rows_left) : k_rows / 2,
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
