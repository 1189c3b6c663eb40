// y = W h for weights in blocks of 32 with one F16 scale (Q8_0, IQ4_NL) and q8 inputs. Two blocks fill the
// 16 lanes.
#pragma once

#include "cpu/generic/linear.h"
#include "format/grids.h"

namespace minim::cpu::generic {

// 0: d f16; 2: q[32] i8.  W(e) = d q[e]
template <class V>
struct Q8_0Blocks {
    static constexpr int64_t k_bytes = 34;
    static typename V::Bytes64 weights(const std::byte* even, const std::byte* odd) {
        return V::join(V::load_32(even + 2), V::load_32(odd + 2));
    }
};

// 0: d f16; 2: 16 bytes, low nibbles first.  W(e) = d iq4nl[nibble]
template <class V>
struct Iq4NlBlocks {
    static constexpr int64_t k_bytes = 18;
    static typename V::Bytes64 weights(const std::byte* even, const std::byte* odd) {
        return V::look_up(V::table(iq4nl_values()), V::nibbles_16(even + 2, odd + 2));
    }
};

template <class V, class Blocks, int n_tokens>
struct Linear32Tile {
    const std::byte* code[n_tokens];
    const float* scale[n_tokens];
    typename V::F32 sum[n_tokens];

    // Blocks `b` and b + 1; the second may be a block of zeros, the input is padded with zeros there.
    inline __attribute__((always_inline)) void add(int64_t b, const std::byte* even, const std::byte* odd) {
        const auto weights = Blocks::weights(even, odd);
        const float even_scale = V::f16(even);
        const float odd_scale = V::f16(odd);
        for (int t = 0; t < n_tokens; ++t) {
            const auto products = V::to_float(V::dot_signed(weights, V::load_64(code[t] + 32 * b)));
            const auto factor = V::halves(even_scale * scale[t][b], odd_scale * scale[t][b + 1]);
            sum[t] = V::fma(products, factor, sum[t]);
        }
    }
};

template <class V, class Blocks, int n_tokens>
void linear_32_row(const LinearArgs& args, int64_t r, int64_t t0) {
    static constexpr std::byte k_zero_block[Blocks::k_bytes] = {};
    const ActivationLayout layout = activation_layout(Activation::q8, args.cols);
    Linear32Tile<V, Blocks, n_tokens> tile;
    for (int t = 0; t < n_tokens; ++t) {
        const std::byte* input = Linear<V>::input_row(args, t0 + t);
        tile.code[t] = input;
        tile.scale[t] = reinterpret_cast<const float*>(input + layout.scale_offset);
        tile.sum[t] = V::zero();
    }
    const std::byte* block = Linear<V>::weight_row(args, r);
    const int64_t n_blocks = args.cols / 32;
    int64_t b = 0;
    for (; b + 2 <= n_blocks; b += 2, block += 2 * Blocks::k_bytes)
        tile.add(b, block, block + Blocks::k_bytes);
    if (b < n_blocks) tile.add(b, block, k_zero_block);
    for (int t = 0; t < n_tokens; ++t) Linear<V>::put(args, r, t0 + t, tile.sum[t]);
}

template <class V, class Blocks>
void linear_32(const LinearArgs& args) {
    for_each_tile<V::k_token_tile, 1>(args, [&](int64_t r, auto, int64_t t, auto n_tokens) {
        linear_32_row<V, Blocks, decltype(n_tokens)::k_value>(args, r, t);
    });
}

}  // namespace minim::cpu::generic
