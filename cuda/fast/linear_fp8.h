// Rows of FP8_E4M3_B128 times rows of floats; the products of every slot's expert.
//
// Shape: a warp a row of weights and up to four inputs, or a row and a slot. A lane takes four codes of a block of 128, and
// the columns these belong to; the lanes add up at the end, always in the same order. Bytes moved: every weight once for four
// inputs, or once a slot, 128 neighbouring bytes a load. Bound: the memory's speed for one row; what a row or a slot more
// costs as much again for experts, which a prompt feels.
#pragma once

#include "cuda/fast/device.h"
#include "cuda/fast/operations.h"
#include "format/block_reader.h"
#include "format/fp8_e4m3_b128.h"

namespace minim::cuda::fast {

// A code as the number it is a 256th of: exponent and mantissa are those of an F16.
MINIM_HOST_DEVICE float e4m3_by_256(uint32_t code) {
    return f16_to_float(static_cast<uint16_t>((code & 0x80U) << 8 | (code & 0x7FU) << 7));
}

// Adds a lane's part of the products of a row and of inputs.
template <int n_tokens>
MINIM_DEVICE void add_fp8_row(const uint8_t* row, int64_t cols, int lane, const float* const* input,
                              float* sum) {
    using Block = FP8_E4M3_B128;
    // Bytes 2i and 2i + 1 of 32 are elements i and 16 + i: those of a lane are two neighbours, twice.
    const int first = lane / 8 * 32 + lane % 8 * 2;
    for (int64_t c = 0; c < cols; c += Block::block_elems) {
        const uint8_t* block = aligned<4>(row + c / Block::block_elems * Block::block_bytes);
        const uint32_t codes = load_u32(aligned<4>(block + Block::codes_at + 4 * lane));
        const float scale = 256.0F * load_f32(block + Block::scale_at);
        float w[4];
        for (int k = 0; k < 4; ++k) w[k] = e4m3_by_256(codes >> (8 * k) & 0xFFU);
        for (int t = 0; t < n_tokens; ++t) {
            const float* x = input[t] + c + first;
            const float part = fmaf(w[3], x[17], fmaf(w[2], x[1], fmaf(w[1], x[16], w[0] * x[0])));
            sum[t] = fmaf(part, scale, sum[t]);
        }
    }
}

template <class T>
MINIM_DEVICE float sum_of_lanes(T& t, float sum) {
    for (int mask = 16; mask > 0; mask /= 2) sum += t.from_lane_xor(sum, mask);
    return sum;
}

struct LinearFp8Kernel {
    static constexpr int k_threads = 128;
    static constexpr int k_rows = k_threads / 32;
    static constexpr int k_tokens = 4;

    Weight weight;
    const float* x;
    int64_t n;
    float* y;
    bool add;

    Grid grid() const { return {(weight.rows + k_rows - 1) / k_rows, (n + k_tokens - 1) / k_tokens}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t row = int64_t{t.block()} * k_rows + t.index() / 32;
        if (row >= weight.rows) return;  // whole warps
        const int64_t first = int64_t{t.block_y()} * k_tokens;
        const int lane = t.index() % 32;
        const uint8_t* codes = weight.data + row * weight.row_bytes;
        const float* input[k_tokens];
        float sum[k_tokens];
        for (int i = 0; i < k_tokens; ++i) {
            input[i] = x + (first + i < n ? first + i : n - 1) * weight.cols;
            sum[i] = 0.0F;
        }
        // The same sums either way.
        if (n == 1) {
            add_fp8_row<1>(codes, weight.cols, lane, input, sum);
        } else {
            add_fp8_row<k_tokens>(codes, weight.cols, lane, input, sum);
        }
        for (int i = 0; i < k_tokens && first + i < n; ++i) {
            const float value = sum_of_lanes(t, sum[i]) * weight.scale;
            if (lane != 0) continue;
            float& out = y[(first + i) * weight.rows + row];
            out = add ? out + value : value;
        }
    }
};

struct ProjectFp8Kernel {
    static constexpr int k_threads = 128;
    static constexpr int k_rows = k_threads / 32;

    Experts experts;
    const float* x;  // a row for so many slots
    int64_t slots_a_row;
    const int32_t* ids;  // [n_slots]
    int64_t n_slots;
    float* y;  // [n_slots, rows]

    Grid grid() const { return {(experts.rows + k_rows - 1) / k_rows, n_slots}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t row = int64_t{t.block()} * k_rows + t.index() / 32;
        if (row >= experts.rows) return;  // whole warps
        const int64_t slot = t.block_y();
        const int32_t id = ids[slot];
        const int lane = t.index() % 32;
        const float* input = x + slot / slots_a_row * experts.cols;
        float sum = 0.0F;
        add_fp8_row<1>(experts.data[id] + row * experts.row_bytes, experts.cols, lane, &input, &sum);
        const float value = sum_of_lanes(t, sum) * experts.scale[id];
        if (lane == 0) y[slot * experts.rows + row] = value;
    }
};

}  // namespace minim::cuda::fast
