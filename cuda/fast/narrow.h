// SPDX-License-Identifier: Apache-2.0
// Converts floats to F16 or BF16, for products of the vendor's library.
//
// BF16 has the exponents of floats. For F16, a row with numbers beyond its range is divided by a power of two before
// the product, and the row of the product is multiplied by that power afterwards. If the product is added to a row,
// that row is divided first.
//
// Shape: for BF16 four elements in each thread, neighbouring threads take neighbours; for F16 and products one block
// of threads for each row. Bytes moved for each element: 4 in, 2 out; for F16 a second time 4 in, mostly from the
// cache; for products only rows with a factor. Bound: memory bandwidth, or the start of a kernel for the rows of a
// step.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "cuda/fast/device.h"

namespace minim::cuda::fast {

// All pointers lie in the device's memory.
void narrow_to_bf16(Stream stream, const float* x, int64_t count, uint16_t* out);
// factor[n]: what each row was divided by; mostly 1.
void narrow_to_f16(Stream stream, const float* x, int64_t n, int64_t cols, uint16_t* out, float* factor);
void multiply_rows(Stream stream, float* y, int64_t n, int64_t cols, const float* factor);
void divide_rows(Stream stream, float* y, int64_t n, int64_t cols, const float* factor);

// Returns why a kernel of this plug-in cannot start on the thread's device; null if it can. (All are compiled for the same
// generations; this one is small.)
const char* why_kernels_cannot_run() noexcept;

struct NarrowKernel {
    static constexpr int k_threads = 256;
    static constexpr int k_own = 4;

    const float* x;
    int64_t count;
    uint16_t* out;

    Grid grid() const { return {.n_blocks = (count + k_threads * k_own - 1) / (k_threads * k_own)}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t first = int64_t{t.block()} * (k_threads * k_own) + t.index();
        for (int k = 0; k < k_own; ++k) {
            const int64_t i = first + k * k_threads;
            if (i >= count) return;
            out[i] = float_to_bf16(x[i]);
        }
    }
};

struct NarrowRowsKernel {
    static constexpr int k_threads = 256;
    // The exponent of a float in 2^15 .. 2^16, which may overflow F16. Rows with such or larger numbers are scaled to 2^14 .. 2^15.
    static constexpr uint32_t k_too_large = 127 + 15;

    const float* x;
    int64_t n;
    int64_t cols;
    uint16_t* out;
    float* factor;

    Grid grid() const { return {.n_blocks = n, .shared_bytes = k_threads / 32 * 4}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const float* row = x + t.block() * cols;
        uint32_t largest = 0;  // as bits, without their signs: infinity is above all numbers, NaN above that
        for (int64_t i = t.index(); i < cols; i += k_threads) {
            const uint32_t bits = float_to_bits(row[i]) & 0x7FFFFFFFU;
            largest = bits > largest ? bits : largest;
        }
        largest = t.largest_of_lanes(largest);
        auto* of_warp = reinterpret_cast<uint32_t*>(t.shared());
        if (t.index() % 32 == 0) of_warp[t.index() / 32] = largest;
        t.sync();
        for (int w = 0; w < k_threads / 32; ++w) largest = of_warp[w] > largest ? of_warp[w] : largest;
        const uint32_t exponent = largest >> 23;
        // Infinity and NaN are not scaled.
        const bool is_brought = exponent >= k_too_large && exponent != 255;
        const uint32_t shift = is_brought ? exponent - (k_too_large - 1) : 0;
        const float inverse = bits_to_float((127 - shift) << 23);
        for (int64_t i = t.index(); i < cols; i += k_threads)
            out[t.block() * cols + i] = float_to_f16(row[i] * inverse);
        if (t.index() == 0) factor[t.block()] = bits_to_float((127 + shift) << 23);
    }
};

struct ScaleRowsKernel {
    static constexpr int k_threads = 256;

    float* y;
    int64_t n;
    int64_t cols;
    const float* factor;
    bool divides;

    Grid grid() const { return {.n_blocks = n}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const float own = factor[t.block()];
        if (own == 1.0F) return;
        const float by = divides ? 1.0F / own : own;  // exact: a power of two, and so is its inverse
        for (int64_t i = t.index(); i < cols; i += k_threads) y[t.block() * cols + i] *= by;
    }
};

}  // namespace minim::cuda::fast
