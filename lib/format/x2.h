// X2_XXS, X2_XS and X2_S: what IQ2_XXS, IQ2_XS and IQ2_S are expanded to (format/expand.h), 256 elements of three bits
// each, a magnitude and a sign.
//
// X2_XXS
//   0  d       f32
//   4  scales  4 bytes: nibble j%2 of byte j/2 scales elements 32j … 32j+31
//   8  codes   64 bytes: 32 bytes hold 128 elements, the lowest bits of each byte the first 32 of them
//  72  signs   32 bytes: bit 0 of each byte is that of the first 32 elements; set: negative
//
// X2_XS, X2_S
//   0  d       f32
//   4  scales  8 bytes: nibble g%2 of byte g/2 scales elements 16g … 16g+15
//  12  codes   as above
//  76  signs   as above
//
//   W = d * (0.5 + scale) / 4 * {8, 25, 43}[code] with its sign: the bits that the IQ2 formats decode to
//
// Pinned by tests/unit/format/expand_test.cpp
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/codebooks.h"
#include "format/format.h"

namespace minim {

// n_scaled elements share a scale.
template <Format of, int n_scaled>
struct X2 {
    static constexpr Format format = of;
    static constexpr int block_elems = 256;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int scales_at = 4;
    static constexpr int codes_at = scales_at + 256 / n_scaled / 2;
    static constexpr int signs_at = codes_at + 64;
    static constexpr int block_bytes = signs_at + 32;

    // None of IQ2's grids has a fourth magnitude.
    MINIM_HOST_DEVICE static int magnitude(int code) {
        constexpr auto k_magnitudes = codebooks::k_iq2s_magnitudes;
        return code < 3 ? k_magnitudes.data[code] : 0;
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f32(block + d_at);
        for (int e = 0; e < 256; ++e) {
            const int g = e / n_scaled;
            const auto group = static_cast<float>(nibble(block[scales_at + g / 2], g % 2));
            const int value = magnitude(code2_of_128(block + codes_at, e));
            const bool is_negative = code1_of_256(block + signs_at, e) != 0;
            out[e] = d * (0.5F + group) * 0.25F * static_cast<float>(is_negative ? -value : value);
        }
    }
};

using X2_XXS = X2<Format::x2_xxs, 32>;
using X2_XS = X2<Format::x2_xs, 16>;
using X2_S = X2<Format::x2_s, 16>;
static_assert(X2_XXS::block_bytes == 4 + 4 + 64 + 32);
static_assert(X2_S::block_bytes == 4 + 8 + 64 + 32);

}  // namespace minim
