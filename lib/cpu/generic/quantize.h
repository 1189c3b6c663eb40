// SPDX-License-Identifier: Apache-2.0
// Input rows as 8-bit codes with scales (layout: q8_block.h). They differ from Q8_0 in one point: the scale also bounds the sum
// of two neighbours, columns 2i and 2i + 1, by 128. Then the sum of their products with unsigned bytes fits the 16-bit sums of
// AVX2; without the bound, four instructions are needed instead of three.
#pragma once

#include "base/half.h"
#include "cpu/generic/exp.h"
#include "cpu/kernels.h"

namespace minim::cpu::generic {

// Returns 1 / d; 0 if d is too small to have an inverse, is NaN or infinite: the codes are then 0.
template <class V>
typename V::F32 inverse_of_scale(float d) {
    return V::all(d >= 0x1p-126F ? 1.0F / d : 0.0F);
}

// Returns the largest magnitude of an element or of the sum of two neighbours; NaN if there is one.
template <class V>
float largest_of_pairs(const float* x, int64_t n) {  // n is a multiple of 16
    auto largest = V::zero();
    for (int64_t i = 0; i < n; i += 16) {
        const auto elements = load<V>(x + i);
        largest = V::max_magnitude(largest, elements);
        largest = V::max_magnitude(largest, V::add(elements, V::swap_neighbours(elements)));
    }
    return V::largest_magnitude(largest);
}

// Clamps to -limit .. limit, for any input. NaN becomes -limit, and the scale is then NaN itself.
template <class V>
typename V::F32 clamp_code(typename V::F32 x, float limit) {
    return V::min(V::max(x, V::all(-limit)), V::all(limit));
}

// Adds the largest number below 0.5, so that truncation (store_i8) then rounds halves away from zero. If 0.5 itself were added,
// the largest number below 0.5 would round up.
template <class V>
typename V::F32 towards_half_away(typename V::F32 x) {
    return V::add(x, V::copy_sign(V::all(0x1.fffffep-2F), x));
}

// Per 32 elements: scale d = largest / 127, codes round(x * (1 / d)); then the sums of 16 codes. The sum of two neighbours
// is at most 127 before rounding, so at most 128 after it.
template <class V>
void quantize_q8(const float* x, int64_t cols, std::byte* out) {
    auto* blocks = reinterpret_cast<Q8Block*>(out);
    for (int64_t b = 0; b < cols / 32; ++b) {
        Q8Block& block = blocks[b];
        const float d = largest_of_pairs<V>(x + 32 * b, 32) / 127.0F;
        const auto inverse = inverse_of_scale<V>(d);
        for (int g = 0; g < 2; ++g) {
            const auto scaled = clamp_code<V>(V::mul(load<V>(x + 32 * b + 16 * g), inverse), 127.0F);
            const int32_t total = V::store_i8(block.code + 16 * g, towards_half_away<V>(scaled));
            block.sum[g] = static_cast<int16_t>(total);
            block.scaled_sum[g] = d * static_cast<float>(total);
        }
        block.scale = d;
        block.scaled_total = block.scaled_sum[0] + block.scaled_sum[1];
        block.unsigned_offset = -k_unsigned_offset * (block.sum[0] + block.sum[1]);
    }
}

}  // namespace minim::cpu::generic
