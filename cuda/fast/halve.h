// SPDX-License-Identifier: Apache-2.0
// Converts rows of floats to HalfBlocks, in F16 or BF16.
//
// Shape: one warp for each block of 128, two pairs of neighbours in each lane. Bytes moved for each element: 4 in,
// 2.1 out. Bound: memory bandwidth, or the start of a kernel for the rows of a step.
#pragma once

#include "base/half.h"
#include "cuda/fast/device.h"
#include "cuda/fast/half_inputs.h"
#include "cuda/fast/operations.h"

namespace minim::cuda::fast {

struct HalveKernel {
    static constexpr int k_threads = 256;
    static constexpr int k_blocks = k_threads / 32;
    // The largest number of a block becomes 2^14 to 2^15: numbers down to 2^-28 of it keep all digits of an F16.
    static constexpr uint32_t k_exponent = 14;
    // Blocks with smaller exponents are scaled as if they had this one: the inverse of their own scale would be
    // infinite.
    static constexpr uint32_t k_min_exponent = 32;

    const float* x;
    int64_t n_blocks;
    Format format;
    HalfBlock* out;

    Grid grid() const { return {.n_blocks = (n_blocks + k_blocks - 1) / k_blocks}; }

    template <class T>
    MINIM_DEVICE void operator()(T& t) const {
        const int64_t block = int64_t{t.block()} * k_blocks + t.index() / 32;
        if (block >= n_blocks) return;  // the whole warp returns
        const int first = t.index() % 32 * 2;
        const float* own = x + block * 128 + first;
        const float pair[2][2] = {{own[0], own[1]}, {own[64], own[65]}};
        HalfBlock& to = out[block];
        const float scale = format == Format::bf16 ? 1.0F : scale_of(t, pair);
        const float inverse = 1.0F / scale;  // exact: a power of two, and so is its inverse
        for (int k = 0; k < 2; ++k) {
            auto* both = reinterpret_cast<uint32_t*>(to.half + first + 64 * k);
            *both = format == Format::bf16 ? bf16_pair(pair[k])
                                           : t.pack_f16(pair[k][0] * inverse, pair[k][1] * inverse);
        }
        if (first != 0) return;
        to.scale = scale;
        for (float& each : to.unused) each = 0.0F;  // copied with the scale
    }

  private:
    // Returns the scale of a block; each lane of the warp has four of its elements.
    template <class T>
    MINIM_DEVICE static float scale_of(T& t, const float (&own)[2][2]) {
        uint32_t largest = 0;  // as bits, without their signs: infinity is above all numbers, NaN above that
        for (const auto& p : own) {
            for (const float value : p) {
                const uint32_t bits = float_to_bits(value) & 0x7FFFFFFFU;
                largest = bits > largest ? bits : largest;
            }
        }
        for (int mask = 16; mask > 0; mask /= 2) {
            const uint32_t other = t.from_lane_xor(largest, mask);
            largest = other > largest ? other : largest;
        }
        uint32_t exponent = largest >> 23;
        if (exponent < k_min_exponent) exponent = k_min_exponent;
        // Infinity and NaN are not scaled.
        return bits_to_float((exponent == 255 ? 127 : exponent - k_exponent) << 23);
    }
};

}  // namespace minim::cuda::fast
