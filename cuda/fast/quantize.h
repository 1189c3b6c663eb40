// SPDX-License-Identifier: Apache-2.0
// Quantises inputs of packed weights: rows of floats to Q8Blocks, with the normalisation before.
//
// Shape: one warp for each block of 32 elements, one element in each lane. Bytes moved for each element: 4 in, 1.5
// out. Bound: latency, because rows are short.
#pragma once

#include <cmath>

#include "cuda/fast/device.h"
#include "cuda/fast/operations.h"

namespace minim::cuda::fast {

MINIM_DEVICE float silu(float x) {
    return x / (1.0F + std::exp(-x));
}

// Returns silu(gate) * up, or the clamped activation (backend/experts.h). The limit is the same for a whole launch.
MINIM_DEVICE float activate_pair(const backend::Activation& activation, float gate, float up) {
    const float limit = activation.limit;
    if (limit == 0.0F) return silu(gate) * up;
    const float g = gate > limit ? limit : gate;  // a NaN stays
    const float u = up > limit ? limit : up < -limit ? -limit : up;
    return g / (1.0F + std::exp(-activation.alpha * g)) * (u + 1.0F);
}

// The rules of quantisation. Codes are x / scale rounded, halves away from zero; scale = largest / 127.
MINIM_DEVICE float larger(float largest, float other) {
    return other > largest || other != other ? other : largest;  // a NaN stays
}
MINIM_DEVICE float q8_scale(float largest) {
    return largest / 127.0F;
}
// Too small a scale has no inverse; such elements, like all of a block with a NaN or an infinity, become 0.
MINIM_DEVICE float q8_inverse(float scale) {
    return scale >= 0x1p-126F && scale <= 0x1p+127F ? 1.0F / scale : 0.0F;
}
MINIM_DEVICE int32_t q8_code(float x, float inverse) {
    const float scaled = x * inverse;
    return inverse == 0.0F ? 0 : static_cast<int32_t>(scaled + (scaled < 0.0F ? -0.5F : 0.5F));
}

// Quantises a block of 32 elements, one in each lane.
template <class T>
MINIM_DEVICE void quantize_lanes(T& t, float x, Q8Block* out) {
    float largest = std::fabs(x);
    for (int mask = 16; mask > 0; mask /= 2) largest = larger(largest, t.from_lane_xor(largest, mask));
    const float scale = q8_scale(largest);
    const int32_t code = q8_code(x, q8_inverse(scale));
    int32_t sum = code;
    for (int mask = 8; mask > 0; mask /= 2) sum += t.from_lane_xor(sum, mask);
    const int lane = t.index() % 32;
    out->code[lane] = static_cast<int8_t>(code);
    if (lane == 0) out->scale = scale;
    if (lane % 16 == 0) {
        out->sum[lane / 16] = static_cast<int16_t>(sum);
        out->scaled_sum[lane / 16] = scale * static_cast<float>(sum);
    }
}

// A block of threads quantises eight blocks.
struct QuantizeKernel {
    static constexpr int k_threads = 256;
    const float* x;
    int64_t n_blocks;
    Q8Block* out;

    Grid grid() const { return {.n_blocks = (n_blocks + 7) / 8}; }
    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t block = int64_t{t.block()} * 8 + t.index() / 32;
        if (block < n_blocks) quantize_lanes(t, x[block * 32 + t.index() % 32], out + block);
    }
};

// One row for each block of threads, which keep the row and the weights in registers as far as they fit.
struct NormKernel {
    static constexpr int k_threads = 512;
    static constexpr int k_kept = 6;  // elements a thread: a row of 3072
    static constexpr bool k_starts_early = true;
    const float* x;
    int64_t n;
    const float* weight;
    int64_t size;
    float eps;
    float* h;
    Q8Block* quantized;

    Grid grid() const { return {.n_blocks = n, .shared_bytes = k_threads / 32 * 4}; }
    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        float gain[k_kept];
        for (int k = 0; k < k_kept; ++k) gain[k] = element(weight, t.index() + k * k_threads);
        t.wait_for_inputs();
        const float* row = x + t.block() * size;
        float kept[k_kept];
        for (int k = 0; k < k_kept; ++k) kept[k] = element(row, t.index() + k * k_threads);
        const int64_t first_left = t.index() + k_kept * k_threads;
        float sum = 0.0F;
        for (const float value : kept) sum += value * value;
        for (int64_t i = first_left; i < size; i += k_threads) sum += row[i] * row[i];
        sum = sum_of_lanes(t, sum);
        auto* sums = reinterpret_cast<float*>(t.shared());
        if (t.index() % 32 == 0) sums[t.index() / 32] = sum;
        t.sync();
        float total = 0.0F;
        for (int w = 0; w < k_threads / 32; ++w) total += sums[w];
        const float factor = 1.0F / std::sqrt(total / static_cast<float>(size) + eps);
        for (int k = 0; k < k_kept; ++k) put(t, t.index() + k * k_threads, kept[k] * factor * gain[k]);
        for (int64_t i = first_left; i < size; i += k_threads) put(t, i, row[i] * factor * weight[i]);
    }

  private:
    MINIM_DEVICE float element(const float* from, int64_t i) const { return i < size ? from[i] : 0.0F; }
    // Whole warps write, as size is a multiple of 32.
    template <class T>
    MINIM_DEVICE void put(T& t, int64_t i, float value) const {
        if (i >= size) return;
        h[t.block() * size + i] = value;
        quantize_lanes(t, value, quantized + t.block() * (size / 32) + i / 32);
    }
};

}  // namespace minim::cuda::fast
