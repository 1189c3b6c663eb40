// Weights that are multiplied as floats (F32, F16, BF16 and FP8_E4M3_B128) times a few rows of floats; gate, up and
// SiLU of every slot's expert, and its down.
//
// Shape: a warp a row of weights and up to four inputs, or a row and a slot; four warps a row where there are few rows. A lane
// takes 16 bytes of every 512, of FP8 four of every 128, and all add up at the end, always in the same order. Bytes moved: every
// weight once for four inputs, or once a slot, in whole lines. Bound: the memory's speed, which takes some 30 KB on their way
// to each multiprocessor: each lane asks for 64 bytes before it uses the first. A router's 256 rows: latency.
#pragma once

#include "cuda/exact/items.h"
#include "cuda/fast/device.h"
#include "cuda/fast/last_block.h"
#include "cuda/fast/operations.h"
#include "cuda/fast/quantize.h"
#include "format/fp8_e4m3_b128.h"
#include "format/plain.h"

namespace minim::cuda::fast {

// Which part of a row a lane takes.
struct RowPart {
    int lane;
    int warp;  // of n_warps
    int n_warps;
};

// How a lane adds its part of the products of a row and of inputs.
template <class Block>
struct FloatRow {
    static_assert(Block::block_elems == 1);
    static constexpr int k_elems = 16 / Block::block_bytes;  // that a lane loads at once
    static constexpr int k_unroll = 4;

    template <int n_tokens>
    MINIM_DEVICE static void add(const uint8_t* row, int64_t cols, RowPart part, const float* const* input,
                                 float* sum) {
        const uintptr_t places = reinterpret_cast<uintptr_t>(row) | reinterpret_cast<uintptr_t>(input[0]);
        const bool is_aligned = cols % k_elems == 0 && places % sizeof(SixteenBytes) == 0;
        if (is_aligned) return add_aligned<n_tokens>(row, cols, part, input, sum);
        for (int64_t c = part.warp * 32 + part.lane; c < cols; c += part.n_warps * 32) {
            float w;
            Block::decode_block(aligned<Block::block_bytes>(row + c * Block::block_bytes), 1.0F, &w);
            for (int t = 0; t < n_tokens; ++t) sum[t] = fmaf(w, input[t][c], sum[t]);
        }
    }

  private:
    template <int n_tokens>
    MINIM_DEVICE static void add_aligned(const uint8_t* row, int64_t cols, RowPart part,
                                         const float* const* input, float* sum) {
        const int step = part.n_warps * 32 * k_elems;
        for (int64_t c0 = (part.warp * 32 + part.lane) * k_elems; c0 < cols; c0 += int64_t{k_unroll} * step) {
            SixteenBytes words[k_unroll];
            for (int k = 0; k < k_unroll; ++k) {
                const int64_t c = c0 + k * step;
                words[k] = {};
                if (c < cols) words[k] = *reinterpret_cast<const SixteenBytes*>(row + c * Block::block_bytes);
            }
            for (int k = 0; k < k_unroll; ++k) {
                const int64_t c = c0 + k * step;
                if (c >= cols) break;
                float w[k_elems];
                for (int e = 0; e < k_elems; ++e)
                    Block::decode_block(
                        reinterpret_cast<const uint8_t*>(words[k].word) + e * Block::block_bytes, 1.0F,
                        &w[e]);
                for (int t = 0; t < n_tokens; ++t) {
                    for (int f = 0; f < k_elems / 4; ++f) {
                        const FourFloats x = *reinterpret_cast<const FourFloats*>(input[t] + c + 4 * f);
                        for (int e = 0; e < 4; ++e) sum[t] = fmaf(w[4 * f + e], x.x[e], sum[t]);
                    }
                }
            }
        }
    }
};

template <>
struct FloatRow<FP8_E4M3_B128> {
    using Block = FP8_E4M3_B128;
    static constexpr int k_unroll = 8;

    template <int n_tokens>
    MINIM_DEVICE static void add(const uint8_t* row, int64_t cols, RowPart part, const float* const* input,
                                 float* sum) {
        // Bytes 2i and 2i + 1 of 32 are elements i and 16 + i: those of a lane are two neighbours, twice.
        const int first = part.lane / 8 * 32 + part.lane % 8 * 2;
        const int step = part.n_warps * Block::block_elems;
        for (int64_t c0 = part.warp * Block::block_elems; c0 < cols; c0 += int64_t{k_unroll} * step) {
            uint32_t codes[k_unroll];
            float scale[k_unroll];
            for (int k = 0; k < k_unroll; ++k) {
                const int64_t c = c0 + k * step;
                codes[k] = 0;
                scale[k] = 0.0F;
                if (c >= cols) continue;
                const uint8_t* block = aligned<4>(row + c / Block::block_elems * Block::block_bytes);
                codes[k] = load_u32(aligned<4>(block + Block::codes_at + 4 * part.lane));
                scale[k] = load_f32(block + Block::scale_at);
            }
            for (int k = 0; k < k_unroll; ++k) {
                const int64_t c = c0 + k * step;
                if (c >= cols) break;
                const uint32_t halves[2] = {e4m3_as_halves_even(codes[k]), e4m3_as_halves_odd(codes[k])};
                float w[2][2];
                for (int i = 0; i < 4; ++i)
                    w[i / 2][i % 2] = f16_to_float(static_cast<uint16_t>(halves[i / 2] >> (i % 2 * 16)));
                for (int t = 0; t < n_tokens; ++t) {
                    const float* x = input[t] + c + first;
                    const float dot =
                        fmaf(w[1][1], x[17], fmaf(w[0][1], x[1], fmaf(w[1][0], x[16], w[0][0] * x[0])));
                    sum[t] = fmaf(dot, k_e4m3_half_factor * scale[k], sum[t]);
                }
            }
        }
    }
};

// n_warps of a block take a row together.
template <class Block, int n_tokens, int n_warps>
struct LinearFloatKernel {
    static constexpr int k_threads = 128;
    static constexpr int k_rows = k_threads / 32 / n_warps;
    static constexpr int k_shared_bytes = n_warps == 1 ? 0 : n_warps * n_tokens * 4;
    static constexpr bool k_starts_early = true;
    static_assert(n_warps == 1 || k_rows == 1);

    Products products;
    const float* x;
    int64_t n;

    MINIM_HOST_DEVICE static int64_t n_blocks(int64_t rows) { return (rows + k_rows - 1) / k_rows; }
    MINIM_HOST_DEVICE Grid grid() const {
        Grid grid = {0, (n + n_tokens - 1) / n_tokens, k_shared_bytes};
        for (int i = 0; i < products.count; ++i) grid.n_blocks += n_blocks(products.rows[i]);
        return grid;
    }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const Rows rows = rows_of(t);
        prefetch(t, rows);
        t.wait_for_inputs();
        multiply(t, rows);
    }

  private:
    // Those of a block.
    struct Rows {
        int product;
        int64_t first;
        int64_t count;
    };
    template <class T>
    MINIM_DEVICE Rows rows_of(T& t) const {
        Rows rows = {0, t.block(), k_rows};
        for (; rows.first >= n_blocks(products.rows[rows.product]); ++rows.product)
            rows.first -= n_blocks(products.rows[rows.product]);
        rows.first *= k_rows;
        const int64_t left = products.rows[rows.product] - rows.first;
        if (left < k_rows) rows.count = left;
        return rows;
    }

    // They do not depend on what is ahead in the stream.
    template <class T>
    MINIM_DEVICE void prefetch(T& t, const Rows& rows) const {
        if (weight_bytes(products) > k_most_prefetched_bytes) return;
        const uint8_t* first = products.weight[rows.product] + rows.first * products.row_bytes;
        const auto before = static_cast<int64_t>(reinterpret_cast<uintptr_t>(first) % 16);
        const int64_t bytes = (before + rows.count * products.row_bytes + 15) / 16 * 16;
        prefetch_together(t, k_threads, first - before, bytes);
    }

    template <class T>
    MINIM_DEVICE void multiply(T& t, const Rows& rows) const {
        const int warp = t.index() / 32;
        if (warp / n_warps >= rows.count) return;  // whole warps, that no other waits for
        const int64_t row = rows.first + warp / n_warps;
        const int64_t first = int64_t{t.block_y()} * n_tokens;
        const float* input[n_tokens];  // the last one again for those that are not there
        float sum[n_tokens];
        for (int i = 0; i < n_tokens; ++i) {
            input[i] = x + (first + i < n ? first + i : n - 1) * products.cols;
            sum[i] = 0.0F;
        }
        FloatRow<Block>::template add<n_tokens>(products.weight[rows.product] + row * products.row_bytes,
                                                products.cols, {t.index() % 32, warp % n_warps, n_warps},
                                                input, sum);
        for (float& each : sum) each = sum_of_lanes(t, each);
        if constexpr (n_warps == 1) {
            if (t.index() % 32 != 0) return;
            for (int i = 0; i < n_tokens && first + i < n; ++i) put(first + i, rows.product, row, sum[i]);
        } else {
            auto* sums = reinterpret_cast<float*>(t.shared());  // [n_tokens, n_warps]
            for (int i = 0; i < n_tokens; ++i)
                if (t.index() % 32 == 0) sums[i * n_warps + warp] = sum[i];
            t.sync();
            if (t.index() >= n_tokens || first + t.index() >= n) return;
            float total = 0.0F;
            for (int w = 0; w < n_warps; ++w) total += sums[t.index() * n_warps + w];
            put(first + t.index(), rows.product, row, total);
        }
    }

    MINIM_DEVICE void put(int64_t token, int product, int64_t row, float sum) const {
        const float value = sum * products.scale[product];
        float& out = products.y[product][token * products.y_stride[product] + row];
        out = products.add[product] ? out + value : value;
    }
};

// A row of a slot's expert times the slot's input, by a warp: in every lane.
template <class Block, class T>
MINIM_DEVICE float multiply_expert_row(T& t, const Experts& experts, int32_t id, int64_t row,
                                       const float* input) {
    float sum = 0.0F;
    FloatRow<Block>::template add<1>(experts.data[id] + row * experts.row_bytes, experts.cols,
                                     {t.index() % 32, 0, 1}, &input, &sum);
    return sum_of_lanes(t, sum) * experts.scale[id];
}

// silu(gate h) * (up h) of every slot, a warp a row of both.
template <class Block>
struct ActivateFloatKernel {
    static constexpr int k_threads = 128;
    static constexpr int k_rows = k_threads / 32;
    static constexpr bool k_starts_early = true;
    static constexpr bool k_holds_next = true;

    Experts gate;
    Experts up;
    const float* h;
    int64_t n_used;
    const int32_t* ids;  // [n_slots]
    int64_t n_slots;
    float* activated;  // [n_slots, rows]

    Grid grid() const { return {n_slots, (gate.rows + k_rows - 1) / k_rows}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        t.wait_for_inputs();
        t.let_next_begin();  // the product after it may read the ids at once
        const int64_t row = int64_t{t.block_y()} * k_rows + t.index() / 32;
        if (row >= gate.rows) return;  // whole warps
        const int64_t slot = t.block();
        const float* input = h + slot / n_used * gate.cols;
        const float g = multiply_expert_row<Block>(t, gate, ids[slot], row, input);
        const float u = multiply_expert_row<Block>(t, up, ids[slot], row, input);
        if (t.index() % 32 == 0) activated[slot * gate.rows + row] = silu(g) * u;
    }
};

// A warp a row; where they are added up, the last block of a row's slots does so.
template <class Block>
struct ProjectFloatKernel {
    static constexpr int k_threads = 128;
    static constexpr int k_rows = k_threads / 32;

    Experts experts;
    const float* x;  // a row for so many slots
    int64_t slots_a_row;
    const int32_t* ids;  // [n_slots]
    int64_t n_slots;
    float* y;       // [n_slots, rows]
    SlotSums sums;  // gates null: none

    // A grid may be long in its first direction only, and a prompt has many slots.
    Grid grid() const { return {n_slots, (experts.rows + k_rows - 1) / k_rows, sizeof(int32_t)}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t slot = t.block();
        const int64_t first = int64_t{t.block_y()} * k_rows;
        const int64_t row = first + t.index() / 32;
        if (row < experts.rows) {
            const float* input = x + slot / slots_a_row * experts.cols;
            const float value = multiply_expert_row<Block>(t, experts, ids[slot], row, input);
            if (t.index() % 32 == 0) y[slot * experts.rows + row] = value;
        }
        if (sums.gates == nullptr) return;
        const int64_t input_row = slot / sums.n_used;
        int32_t* arrived = sums.arrived + input_row * sum_counters(experts.rows) + t.block_y();
        auto* is_last = reinterpret_cast<int32_t*>(t.shared());
        if (!is_last_block(t, arrived, static_cast<int32_t>(sums.n_used), is_last)) return;
        const exact::AddSlotsItem add = {y, sums.gates, sums.n_used, experts.rows, sums.y};
        if (t.index() < k_rows && first + t.index() < experts.rows)
            add(input_row * experts.rows + first + t.index());
    }
};

}  // namespace minim::cuda::fast
