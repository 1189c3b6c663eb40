// Rows of F32, F16 and BF16 weights times rows of floats.
//
// Shape: a warp a row of weights and up to four inputs; the lanes take neighbouring columns and add up at the end, always in
// the same order. Bytes moved: every weight once for four inputs, in lines of 64 or 128 bytes. Bound: the memory's speed for
// long rows, latency for a router's 256.
#pragma once

#include "cuda/fast/device.h"
#include "cuda/fast/operations.h"
#include "format/plain.h"

namespace minim::cuda::fast {

template <class Block, int n_tokens>
struct LinearFloatKernel {
    static constexpr int k_threads = 128;
    static constexpr int k_rows = k_threads / 32;
    static constexpr int k_unroll = 4;
    static_assert(Block::block_elems == 1);

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
        const int count = n - first < n_tokens ? static_cast<int>(n - first) : n_tokens;
        const uint8_t* data = weight.data + row * weight.row_bytes;
        float sum[n_tokens];
        for (float& s : sum) s = 0.0F;
        for (int64_t c0 = t.index() % 32; c0 < weight.cols; c0 += int64_t{32} * k_unroll) {
            float w[k_unroll];
            for (int k = 0; k < k_unroll; ++k) {
                const int64_t c = c0 + 32 * k;
                w[k] = 0.0F;
                if (c < weight.cols)
                    Block::decode_block(aligned<Block::block_bytes>(data + c * Block::block_bytes), 1.0F,
                                        &w[k]);
            }
            for (int i = 0; i < n_tokens; ++i) {
                if (i >= count) break;
                const float* input = x + (first + i) * weight.cols;
                for (int k = 0; k < k_unroll; ++k) {
                    const int64_t c = c0 + 32 * k;
                    if (c < weight.cols) sum[i] = fmaf(w[k], input[c], sum[i]);
                }
            }
        }
        for (int i = 0; i < n_tokens; ++i) {
            for (int mask = 16; mask > 0; mask /= 2) sum[i] += t.from_lane_xor(sum[i], mask);
            if (i >= count || t.index() % 32 != 0) continue;
            const float value = sum[i] * weight.scale;
            float& out = y[(first + i) * weight.rows + row];
            out = add ? out + value : value;
        }
    }
};

}  // namespace minim::cuda::fast
