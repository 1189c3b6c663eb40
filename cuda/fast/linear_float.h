// SPDX-License-Identifier: Apache-2.0
// Multiplies weights as floats (F32, F16, BF16 and FP8_E4M3_B128) by a few rows of floats; also gate, up and SiLU of
// every slot's expert, and its down.
//
// Shape: a warp takes two rows of weights and up to four inputs, or two rows (one of gate, one of up) and a slot; if
// there are few rows, four warps take a row. Two rows share the loaded inputs, which have four bytes for each weight.
// A lane takes 16 bytes of every 512 (of FP8 four of every 128); all lanes are added at the end, always in the same
// order. Bytes moved: every weight once for four inputs, or once for each slot, in whole lines. Bound: memory
// bandwidth, which needs some 30 KB in flight for each multiprocessor: each lane loads 64 bytes (of FP8 32) before it
// uses the first. A router's 256 rows: latency.
#pragma once

#include "cuda/exact/items.h"
#include "cuda/fast/device.h"
#include "cuda/fast/lanes.h"
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

// Returns weight `elem` of the weights in 16 bytes.
template <class Block>
MINIM_DEVICE float weight_of(const SixteenBytes& words, int elem) {
    if constexpr (Block::format == Format::f16) {
        return Lanes::f16_of(words.word[elem / 2] >> (elem % 2 * 16) & 0xFFFFU);
    } else {
        float w;
        const auto* bytes = reinterpret_cast<const uint8_t*>(words.word);
        Block::decode_block(bytes + elem * Block::block_bytes, 1.0F, &w);
        return w;
    }
}

// Adds a lane's part of the products of rows and inputs. The lane loads its part of the inputs once for all rows.
template <class Block>
struct FloatRows {
    static_assert(Block::block_elems == 1);
    static constexpr int k_elems = 16 / Block::block_bytes;  // that a lane loads at once

    template <int n_rows, int n_tokens>
    MINIM_DEVICE static void add(const uint8_t* const (&row)[n_rows], int64_t cols, RowPart part,
                                 const float* const* input, float (&sum)[n_rows][n_tokens]) {
        uintptr_t places = reinterpret_cast<uintptr_t>(input[0]);
        for (const uint8_t* each : row) places |= reinterpret_cast<uintptr_t>(each);
        const bool is_aligned = cols % k_elems == 0 && places % sizeof(SixteenBytes) == 0;
        if (is_aligned) return add_aligned(row, static_cast<int>(cols), part, input, sum);
        for (int64_t c = part.warp * 32 + part.lane; c < cols; c += part.n_warps * 32) {
            for (int r = 0; r < n_rows; ++r) {
                float w;
                Block::decode_block(aligned<Block::block_bytes>(row[r] + c * Block::block_bytes), 1.0F, &w);
                for (int t = 0; t < n_tokens; ++t) sum[r][t] = fmaf(w, input[t][c], sum[r][t]);
            }
        }
    }

  private:
    template <int n_rows, int n_tokens>
    MINIM_DEVICE static void add_aligned(const uint8_t* const (&row)[n_rows], int cols, RowPart part,
                                         const float* const* input, float (&sum)[n_rows][n_tokens]) {
        constexpr int k_unroll = 4 / n_rows;
        const int step = part.n_warps * 32 * k_elems;
        for (int c0 = (part.warp * 32 + part.lane) * k_elems; c0 < cols; c0 += k_unroll * step) {
            SixteenBytes words[k_unroll][n_rows] = {};
            for (int k = 0; k < k_unroll; ++k) {
                const int c = c0 + k * step;
                if (c >= cols) continue;
                for (int r = 0; r < n_rows; ++r)
                    words[k][r] = *reinterpret_cast<const SixteenBytes*>(row[r] + c * Block::block_bytes);
            }
            for (int k = 0; k < k_unroll; ++k) {
                const int c = c0 + k * step;
                if (c >= cols) break;
                for (int t = 0; t < n_tokens; ++t) {
                    for (int f = 0; f < k_elems / 4; ++f) {
                        const FourFloats x = *reinterpret_cast<const FourFloats*>(input[t] + c + 4 * f);
                        for (int r = 0; r < n_rows; ++r)
                            for (int e = 0; e < 4; ++e)
                                sum[r][t] = fmaf(weight_of<Block>(words[k][r], 4 * f + e), x.x[e], sum[r][t]);
                    }
                }
            }
        }
    }
};

// Converts four codes to floats that are too small by k_e4m3_factor. From sm_89 on there is an instruction for two of
// them.
#if __CUDA_ARCH__ >= 890
inline constexpr float k_e4m3_factor = 1.0F;
#else
inline constexpr float k_e4m3_factor = k_e4m3_half_factor;
#endif
MINIM_DEVICE void floats_of_e4m3(uint32_t codes, float (&w)[4]) {
#if __CUDA_ARCH__ >= 890
    for (int i = 0; i < 2; ++i) {
        uint32_t halves;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes >> (16 * i))));
        w[2 * i] = Lanes::f16_of(halves & 0xFFFFU);
        w[2 * i + 1] = Lanes::f16_of(halves >> 16);
    }
#else
    const uint32_t halves[2] = {e4m3_as_halves_even(codes), e4m3_as_halves_odd(codes)};
    for (int i = 0; i < 4; ++i) w[i] = Lanes::f16_of(halves[i % 2] >> (i / 2 * 16) & 0xFFFFU);
#endif
}

template <>
struct FloatRows<FP8_E4M3_B128> {
    using Block = FP8_E4M3_B128;

    template <int n_rows, int n_tokens>
    MINIM_DEVICE static void add(const uint8_t* const (&row)[n_rows], int64_t cols, RowPart part,
                                 const float* const* input, float (&sum)[n_rows][n_tokens]) {
        constexpr int k_unroll = 8 / n_rows;
        // Bytes 2i and 2i + 1 of 32 are elements i and 16 + i, so a lane has two pairs of neighbours.
        const int first = part.lane / 8 * 32 + part.lane % 8 * 2;
        const int n_blocks = static_cast<int>(cols) / Block::block_elems;
        for (int b0 = part.warp; b0 < n_blocks; b0 += k_unroll * part.n_warps) {
            uint32_t codes[k_unroll][n_rows] = {};
            float scale[k_unroll][n_rows] = {};
            for (int k = 0; k < k_unroll; ++k) {
                if (b0 + k * part.n_warps >= n_blocks) continue;
                for (int r = 0; r < n_rows; ++r) {
                    const uint8_t* block =
                        aligned<4>(row[r] + b0 * Block::block_bytes) + k * part.n_warps * Block::block_bytes;
                    codes[k][r] = load_u32(aligned<4>(block + Block::codes_at + 4 * part.lane));
                    scale[k][r] = load_f32(aligned<4>(block + Block::scale_at));
                }
            }
            for (int k = 0; k < k_unroll; ++k) {
                if (b0 + k * part.n_warps >= n_blocks) break;
                float w[n_rows][4];
                for (int r = 0; r < n_rows; ++r) floats_of_e4m3(codes[k][r], w[r]);
                for (int t = 0; t < n_tokens; ++t) {
                    const float* x =
                        input[t] + b0 * Block::block_elems + first + k * part.n_warps * Block::block_elems;
                    const TwoFloats low = *reinterpret_cast<const TwoFloats*>(x);
                    const TwoFloats high = *reinterpret_cast<const TwoFloats*>(x + 16);
                    for (int r = 0; r < n_rows; ++r) {
                        float dot = w[r][0] * low.x[0];
                        dot = fmaf(w[r][1], high.x[0], dot);
                        dot = fmaf(w[r][2], low.x[1], dot);
                        dot = fmaf(w[r][3], high.x[1], dot);
                        sum[r][t] = fmaf(dot, k_e4m3_factor * scale[k][r], sum[r][t]);
                    }
                }
            }
        }
    }
};

// n_warps warps of a block take a row together; if n_warps is 1, each warp takes two rows.
template <class Block, int n_tokens, int n_warps>
struct LinearFloatKernel {
    static constexpr int k_threads = 128;
    static constexpr int k_rows_a_warp = n_warps == 1 ? 2 : 1;
    static constexpr int k_rows = k_threads / 32 / n_warps * k_rows_a_warp;
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
    // The rows of a block.
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

    // Prefetches the weights, which do not depend on earlier work in the stream.
    template <class T>
    MINIM_DEVICE void prefetch(T& t, const Rows& rows) const {
        if (!products.prefetches) return;
        const uint8_t* first = products.weight[rows.product] + rows.first * products.row_bytes;
        const auto before = static_cast<int64_t>(reinterpret_cast<uintptr_t>(first) % 16);
        const int64_t bytes = (before + rows.count * products.row_bytes + 15) / 16 * 16;
        prefetch_together(t, k_threads, first - before, bytes);
    }

    template <class T>
    MINIM_DEVICE void multiply(T& t, const Rows& rows) const {
        const int warp = t.index() / 32;
        const int64_t first_row = int64_t{warp} / n_warps * k_rows_a_warp;
        if (first_row >= rows.count) return;  // the whole warp returns, and no other one waits for it
        const int64_t first = int64_t{t.block_y()} * n_tokens;
        // The last row and the last input take the place of rows and inputs that do not exist.
        const uint8_t* row[k_rows_a_warp];
        const float* input[n_tokens];
        float sum[k_rows_a_warp][n_tokens] = {};
        for (int r = 0; r < k_rows_a_warp; ++r) {
            const int64_t of_block = first_row + r < rows.count ? first_row + r : rows.count - 1;
            row[r] = products.weight[rows.product] + (rows.first + of_block) * products.row_bytes;
        }
        for (int i = 0; i < n_tokens; ++i) input[i] = x + (first + i < n ? first + i : n - 1) * products.cols;
        FloatRows<Block>::add(row, products.cols, {t.index() % 32, warp % n_warps, n_warps}, input, sum);
        for (auto& of_row : sum)
            for (float& each : of_row) each = sum_of_lanes(t, each);
        if constexpr (n_warps == 1) {
            if (t.index() % 32 != 0) return;
            for (int r = 0; r < k_rows_a_warp && first_row + r < rows.count; ++r)
                for (int i = 0; i < n_tokens && first + i < n; ++i)
                    put(first + i, rows.product, rows.first + first_row + r, sum[r][i]);
        } else {
            auto* sums = reinterpret_cast<float*>(t.shared());  // [n_tokens, n_warps]
            for (int i = 0; i < n_tokens; ++i)
                if (t.index() % 32 == 0) sums[i * n_warps + warp] = sum[0][i];
            t.sync();
            if (t.index() >= n_tokens || first + t.index() >= n) return;
            float total = 0.0F;
            for (int w = 0; w < n_warps; ++w) total += sums[t.index() * n_warps + w];
            put(first + t.index(), rows.product, rows.first, total);
        }
    }

    MINIM_DEVICE void put(int64_t token, int product, int64_t row, float sum) const {
        const float value = sum * products.scale[product];
        float& out = products.y[product][token * products.y_stride[product] + row];
        out = products.add[product] ? out + value : value;
    }
};

// The products of two rows of experts and a slot's input, which a warp computes. Every lane has them, without the
// experts' scales.
struct TwoSums {
    float of[2];
};
template <class Block, class T>
MINIM_DEVICE TwoSums multiply_two_rows(T& t, const uint8_t* first, const uint8_t* second, int64_t cols,
                                       const float* input) {
    const uint8_t* const row[2] = {first, second};
    float sum[2][1] = {};
    FloatRows<Block>::add(row, cols, {t.index() % 32, 0, 1}, &input, sum);
    return {sum_of_lanes(t, sum[0][0]), sum_of_lanes(t, sum[1][0])};
}

// Computes silu(gate h) * (up h) of every slot whose expert is here; a warp takes a row of both matrices.
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
        if (row >= gate.rows) return;  // the whole warp returns
        const int64_t slot = t.block();
        const float* input = h + slot / n_used * gate.cols;
        const exact::ExpertRows gate_rows = rows_of(gate, ids[slot]);
        const exact::ExpertRows up_rows = rows_of(up, ids[slot]);
        if (gate_rows.data == nullptr) return;  // the whole block returns
        const TwoSums sum = multiply_two_rows<Block>(t, gate_rows.data + row * gate.row_bytes,
                                                     up_rows.data + row * up.row_bytes, gate.cols, input);
        if (t.index() % 32 == 0)
            activated[slot * gate.rows + row] =
                activate_pair(gate.activation, sum.of[0] * gate_rows.scale, sum.of[1] * up_rows.scale);
    }
};

// Two rows per warp of a slot whose expert is here. If slots are summed, the product of a slot whose expert is not here is
// 0, and the last block of a row's slots computes the sum.
template <class Block>
struct ProjectFloatKernel {
    static constexpr int k_threads = 128;
    static constexpr int k_rows = k_threads / 32 * 2;

    Experts experts;
    const float* x;  // a row for every slots_a_row slots
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
        const int64_t row = first + t.index() / 32 * 2;
        const exact::ExpertRows expert = rows_of(experts, ids[slot]);
        const bool is_here = expert.data != nullptr;
        if (!is_here && sums.gates == nullptr) return;  // the whole block returns
        if (row < experts.rows) {
            const bool has_second = row + 1 < experts.rows;
            TwoSums sum = {};
            if (is_here) {
                const uint8_t* weights = expert.data + row * experts.row_bytes;
                sum = multiply_two_rows<Block>(t, weights, weights + (has_second ? experts.row_bytes : 0),
                                               experts.cols, x + slot / slots_a_row * experts.cols);
            }
            if (t.index() % 32 == 0) {
                float* out = y + slot * experts.rows + row;
                out[0] = sum.of[0] * expert.scale;
                if (has_second) out[1] = sum.of[1] * expert.scale;
            }
        }
        if (sums.gates == nullptr) return;
        const int64_t input_row = slot / sums.n_used;
        int32_t* arrived = sums.arrived + input_row * sum_counters(experts.rows) + t.block_y();
        auto* is_last = reinterpret_cast<int32_t*>(t.shared());
        if (!is_last_block(t, arrived, static_cast<int32_t>(sums.n_used), is_last)) return;
        const exact::AddSlotsItem add = {
            y, sums.gates, sums.n_used, experts.rows, sums.y, {nullptr, nullptr, sums.add}};
        if (t.index() < k_rows && first + t.index() < experts.rows)
            add(input_row * experts.rows + first + t.index());
    }
};

}  // namespace minim::cuda::fast
