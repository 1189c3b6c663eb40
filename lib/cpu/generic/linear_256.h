// y = W h for weights in blocks of 256 with integer sub-block scales (Q4_K, Q6_K, IQ4_XS) and q8 inputs.
//
// A block is taken in four parts of 64 elements. A Blocks type gives, for one block, its float scale, and for
// a part its 64 weights and their integer factors; k_has_minima adds Q4_K's second term.
#pragma once

#include <cstring>

#include "cpu/generic/linear.h"
#include "format/grids.h"

namespace minim::cpu::generic {

// 0: d f16; 2: dmin f16; 4: 12 bytes of 6-bit scales and minima; 16: nibbles, 32 bytes for 64 elements.
// W(e) = d scale[e / 32] nibble - dmin minimum[e / 32]
template <class V>
struct Q4KBlocks {
    static constexpr int64_t k_bytes = 144;
    static constexpr bool k_signed = false;
    static constexpr bool k_has_minima = true;

    const std::byte* block;
    uint8_t factor[8];
    uint8_t minimum[8];

    // Four six-bit fields a word: of the 12 bytes a, b, c the first four scales and minima are the low six
    // bits of a and b; the last four have their low nibbles in c and their two high bits at the top of a and
    // b.
    explicit Q4KBlocks(const std::byte* at) : block(at) {
        uint32_t word[3];
        memcpy(word, at + 4, sizeof(word));
        const uint32_t low_factors = word[0] & 0x3F3F3F3FU;
        const uint32_t low_minima = word[1] & 0x3F3F3F3FU;
        const uint32_t high_factors = (word[2] & 0x0F0F0F0FU) | ((word[0] >> 2) & 0x30303030U);
        const uint32_t high_minima = ((word[2] >> 4) & 0x0F0F0F0FU) | ((word[1] >> 2) & 0x30303030U);
        memcpy(factor, &low_factors, 4);
        memcpy(factor + 4, &high_factors, 4);
        memcpy(minimum, &low_minima, 4);
        memcpy(minimum + 4, &high_minima, 4);
    }
    float scale() const { return V::f16(block); }
    float minimum_scale() const { return V::f16(block + 2); }
    template <int part>
    typename V::Bytes64 weights() const {
        const auto packed = V::load_32(block + 16 + 32 * part);
        return V::join(V::template bits<0, 15>(packed), V::template bits<4, 15>(packed));
    }
    template <int part>
    typename V::I16 factors() const {
        return V::half_factors(factor[2 * part], factor[2 * part + 1]);
    }
};

// 0: low nibbles, 64 bytes for 128 elements; 128: high 2-bit fields, 32 bytes for 128 elements; 192: 16 i8
// scales; 208: d f16.  W(e) = d scale[e / 16] (q - 32)
template <class V>
struct Q6KBlocks {
    static constexpr int64_t k_bytes = 210;
    static constexpr bool k_signed = true;
    static constexpr bool k_has_minima = false;

    const std::byte* block;

    explicit Q6KBlocks(const std::byte* at) : block(at) {}
    float scale() const { return V::f16(block + 208); }
    template <int part>
    typename V::Bytes64 weights() const {
        constexpr int k_half = part / 2;  // 128 elements
        constexpr int k_shift =
            4 * (part % 2);  // which nibble of the low bits, which pair of fields of the high bits
        const auto low = V::template bits<k_shift, 15>(V::load_64(block + 64 * k_half));
        const auto packed = V::load_32(block + 128 + 32 * k_half);
        const auto high =
            V::join(V::template bits<k_shift, 3>(packed), V::template bits<k_shift + 2, 3>(packed));
        return V::minus(V::or_high_nibble(low, high), 32);
    }
    template <int part>
    typename V::I16 factors() const {
        return V::quarter_factors(block + 192 + 4 * part);
    }
};

// 0: d f16; 2: high 2 bits of the scales; 4: their low nibbles; 8: nibbles, 16 bytes for 32 elements.
// W(e) = d (scale[e / 32] - 32) iq4nl[nibble]
template <class V>
struct Iq4XsBlocks {
    static constexpr int64_t k_bytes = 136;
    static constexpr bool k_signed = true;
    static constexpr bool k_has_minima = false;

    const std::byte* block;
    uint32_t high;
    uint32_t low;

    explicit Iq4XsBlocks(const std::byte* at) : block(at) {
        uint16_t fields;
        memcpy(&fields, at + 2, sizeof(fields));
        high = fields;
        memcpy(&low, at + 4, sizeof(low));
    }
    float scale() const { return V::f16(block); }
    template <int part>
    typename V::Bytes64 weights() const {
        const std::byte* nibbles = block + 8 + 32 * part;
        return V::look_up(V::table(iq4nl_values()), V::nibbles_16(nibbles, nibbles + 16));
    }
    template <int part>
    typename V::I16 factors() const {
        return V::half_factors(sub_block_scale(2 * part), sub_block_scale(2 * part + 1));
    }

  private:
    int sub_block_scale(int j) const {
        return static_cast<int>(((low >> (4 * j)) & 15U) | (((high >> (2 * j)) & 3U) << 4)) - 32;
    }
};

template <class V, class Blocks, int n_tokens>
struct Linear256Tile {
    const std::byte* code[n_tokens];
    const float* scale[n_tokens];
    const int16_t* code_sum[n_tokens];
    typename V::F32 sum[n_tokens];

    // The two sub-blocks of 32 of a part have an input scale each, lanes 0-7 and 8-15.
    template <int part>
    inline __attribute__((always_inline)) void add_part(const Blocks& block, int64_t b, float d) {
        const auto weights = block.template weights<part>();
        const auto factors = block.template factors<part>();
        for (int t = 0; t < n_tokens; ++t) {
            const auto codes = V::load_64(code[t] + 256 * b + 64 * part);
            const float* input_scale = scale[t] + 8 * b + 2 * part;
            typename V::I32 products = V::zero_i32();
            if constexpr (Blocks::k_signed) {
                products = V::add_dot_signed(products, weights, codes, factors);
            } else {
                products = V::add_dot_unsigned(products, weights, codes, factors);
            }
            const auto factor = V::halves(d * input_scale[0], d * input_scale[1]);
            sum[t] = V::fma(V::to_float(products), factor, sum[t]);
        }
    }

    inline __attribute__((always_inline)) void add(int64_t b, const Blocks& block) {
        const float d = block.scale();
        add_part<0>(block, b, d);
        add_part<1>(block, b, d);
        add_part<2>(block, b, d);
        add_part<3>(block, b, d);
        if constexpr (Blocks::k_has_minima) {
            const auto minimum_scale = V::all(-block.minimum_scale());
            for (int t = 0; t < n_tokens; ++t) {
                const auto minima = V::weighted_pairs(code_sum[t] + 16 * b, block.minimum);
                const auto factor = V::mul(minimum_scale, V::load_8(scale[t] + 8 * b));
                sum[t] = V::fma(V::to_float(minima), factor, sum[t]);
            }
        }
    }
};

template <class V, class Blocks, int n_tokens>
void linear_256_row(const LinearArgs& args, int64_t r, int64_t t0) {
    const ActivationLayout layout = activation_layout(Activation::q8, args.cols);
    Linear256Tile<V, Blocks, n_tokens> tile;
    for (int t = 0; t < n_tokens; ++t) {
        const std::byte* input = Linear<V>::input_row(args, t0 + t);
        tile.code[t] = input;
        tile.scale[t] = reinterpret_cast<const float*>(input + layout.scale_offset);
        tile.code_sum[t] = reinterpret_cast<const int16_t*>(input + layout.sum_offset);
        tile.sum[t] = V::zero();
    }
    const std::byte* row = Linear<V>::weight_row(args, r);
    for (int64_t b = 0; b < args.cols / 256; ++b) tile.add(b, Blocks(row + b * Blocks::k_bytes));
    for (int t = 0; t < n_tokens; ++t) Linear<V>::put(args, r, t0 + t, tile.sum[t]);
}

template <class V, class Blocks>
void linear_256(const LinearArgs& args) {
    for_each_tile<V::k_token_tile, 1>(args, [&](int64_t r, auto, int64_t t, auto n_tokens) {
        linear_256_row<V, Blocks, decltype(n_tokens)::k_value>(args, r, t);
    });
}

}  // namespace minim::cpu::generic
