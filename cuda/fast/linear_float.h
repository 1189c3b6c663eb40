// Weights that are multiplied as floats (F32, F16, BF16 and FP8_E4M3_B128) times a few rows of floats; the products of every
// slot's expert.
//
// Shape: a warp a row of weights and up to four inputs, or a row and a slot. The lanes take neighbouring columns, of FP8 four
// of every 128, and add up at the end, always in the same order. Bytes moved: every weight once for four inputs, or once a
// slot, in lines of 64 or 128 bytes. Bound: the memory's speed for long rows, latency for a router's 256.
#pragma once

#include "cuda/fast/device.h"
#include "cuda/fast/operations.h"
#include "format/fp8_e4m3_b128.h"
#include "format/plain.h"

namespace minim::cuda::fast {

// How a lane adds its part of the products of a row and of inputs.
template <class Block>
struct FloatRow {
    static_assert(Block::block_elems == 1);
    static constexpr int k_unroll = 4;

    template <int n_tokens>
    MINIM_DEVICE static void add(const uint8_t* row, int64_t cols, int lane, const float* const* input,
                                 float* sum) {
        for (int64_t c0 = lane; c0 < cols; c0 += int64_t{32} * k_unroll) {
            float w[k_unroll];
            for (int k = 0; k < k_unroll; ++k) {
                const int64_t c = c0 + 32 * k;
                w[k] = 0.0F;
                if (c < cols)
                    Block::decode_block(aligned<Block::block_bytes>(row + c * Block::block_bytes), 1.0F,
                                        &w[k]);
            }
            for (int t = 0; t < n_tokens; ++t) {
                for (int k = 0; k < k_unroll; ++k) {
                    const int64_t c = c0 + 32 * k;
                    if (c < cols) sum[t] = fmaf(w[k], input[t][c], sum[t]);
                }
            }
        }
    }
};

template <>
struct FloatRow<FP8_E4M3_B128> {
    using Block = FP8_E4M3_B128;

    template <int n_tokens>
    MINIM_DEVICE static void add(const uint8_t* row, int64_t cols, int lane, const float* const* input,
                                 float* sum) {
        // Bytes 2i and 2i + 1 of 32 are elements i and 16 + i: those of a lane are two neighbours, twice.
        const int first = lane / 8 * 32 + lane % 8 * 2;
        for (int64_t c = 0; c < cols; c += Block::block_elems) {
            const uint8_t* block = aligned<4>(row + c / Block::block_elems * Block::block_bytes);
            const uint32_t codes = load_u32(aligned<4>(block + Block::codes_at + 4 * lane));
            const float scale = k_e4m3_half_factor * load_f32(block + Block::scale_at);
            const uint32_t halves[2] = {e4m3_as_halves_even(codes), e4m3_as_halves_odd(codes)};
            float w[2][2];
            for (int k = 0; k < 4; ++k)
                w[k / 2][k % 2] = f16_to_float(static_cast<uint16_t>(halves[k / 2] >> (k % 2 * 16)));
            for (int t = 0; t < n_tokens; ++t) {
                const float* x = input[t] + c + first;
                const float part =
                    fmaf(w[1][1], x[17], fmaf(w[0][1], x[1], fmaf(w[1][0], x[16], w[0][0] * x[0])));
                sum[t] = fmaf(part, scale, sum[t]);
            }
        }
    }
};

template <class Block, int n_tokens>
struct LinearFloatKernel {
    static constexpr int k_threads = 128;
    static constexpr int k_rows = k_threads / 32;

    Weight weight;
    const float* x;
    int64_t n;
    float* y;
    bool add;

    Grid grid() const { return {(weight.rows + k_rows - 1) / k_rows, (n + n_tokens - 1) / n_tokens}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t row = int64_t{t.block()} * k_rows + t.index() / 32;
        if (row >= weight.rows) return;  // whole warps
        const int64_t first = int64_t{t.block_y()} * n_tokens;
        const float* input[n_tokens];  // the last one again for those that are not there
        float sum[n_tokens];
        for (int i = 0; i < n_tokens; ++i) {
            input[i] = x + (first + i < n ? first + i : n - 1) * weight.cols;
            sum[i] = 0.0F;
        }
        FloatRow<Block>::template add<n_tokens>(weight.data + row * weight.row_bytes, weight.cols,
                                                t.index() % 32, input, sum);
        for (int i = 0; i < n_tokens && first + i < n; ++i) {
            const float value = sum_of_lanes(t, sum[i]) * weight.scale;
            if (t.index() % 32 != 0) continue;
            float& out = y[(first + i) * weight.rows + row];
            out = add ? out + value : value;
        }
    }
};

template <class Block>
struct ProjectFloatKernel {
    static constexpr int k_threads = 128;
    static constexpr int k_rows = k_threads / 32;

    Experts experts;
    const float* x;  // a row for so many slots
    int64_t slots_a_row;
    const int32_t* ids;  // [n_slots]
    int64_t n_slots;
    float* y;  // [n_slots, rows]

    // A grid may be long in its first direction only, and a prompt has many slots.
    Grid grid() const { return {n_slots, (experts.rows + k_rows - 1) / k_rows}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t row = int64_t{t.block_y()} * k_rows + t.index() / 32;
        if (row >= experts.rows) return;  // whole warps
        const int64_t slot = t.block();
        const int32_t id = ids[slot];
        const float* input = x + slot / slots_a_row * experts.cols;
        float sum = 0.0F;
        FloatRow<Block>::template add<1>(experts.data[id] + row * experts.row_bytes, experts.cols,
                                         t.index() % 32, &input, &sum);
        const float value = sum_of_lanes(t, sum) * experts.scale[id];
        if (t.index() % 32 == 0) y[slot * experts.rows + row] = value;
    }
};

}  // namespace minim::cuda::fast
