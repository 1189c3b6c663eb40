// SPDX-License-Identifier: Apache-2.0
// X2_XXS, X2_XS and X2_S: the unpacked formats of IQ2_XXS, IQ2_XS and IQ2_S (format/expand.h), 256 elements of three bits
// each, a magnitude and a sign.
//
// X2_XXS
//   0  d       f32
//   4  scales  4 bytes: nibble j%2 of byte j/2 scales elements 32j … 32j+31
//   8  codes   three times 32 bytes: byte i of each 32 has codes of elements i, 32 + i, 64 + i ... 224 + i
//
// X2_XS, X2_S
//   0  d       f32
//   4  scales  8 bytes: nibble g%2 of byte g/2 scales elements 16g … 16g+15
//  12  codes   as above
//
//   bits    0-2         3-5         6-7
//   first   element 0   element 1   magnitude of element 6
//   second  element 2   element 3   magnitude of element 7
//   third   element 4   element 5   signs of elements 6 and 7
//
//   A code has a magnitude in its two low bits and a sign above, set if the weight is negative. Nearly all codes are moved to
//   a byte of their own with a shift and a mask.
//
//   W = d * (0.5 + scale) / 4 * {8, 25, 43}[magnitude] with its sign: the same bits as decoded from the IQ2 formats
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
    static constexpr int block_bytes = codes_at + 96;

    // Returns the code of element e.
    MINIM_HOST_DEVICE static int code(const uint8_t* codes, int e) {
        const uint8_t* first = codes + e % 32;
        const int u = e / 32;
        if (u < 6) return bit_field(first[32 * (u / 2)], 3 * (u % 2), 3);
        return bit_field(first[32 * (u - 6)], 6, 2) | bit_field(first[64], u, 1) << 2;
    }

    // Returns the value of a code. The IQ2 codebooks have no fourth magnitude.
    MINIM_HOST_DEVICE static int value(int code) {
        constexpr auto k_magnitudes = codebooks::k_iq2s_magnitudes;
        const int magnitude = code % 4 < 3 ? k_magnitudes.data[code % 4] : 0;
        return code < 4 ? magnitude : -magnitude;
    }

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f32(block + d_at);
        for (int e = 0; e < 256; ++e) {
            const int g = e / n_scaled;
            const auto group = static_cast<float>(nibble(block[scales_at + g / 2], g % 2));
            out[e] = d * (0.5F + group) * 0.25F * static_cast<float>(value(code(block + codes_at, e)));
        }
    }
};

using X2_XXS = X2<Format::x2_xxs, 32>;
using X2_XS = X2<Format::x2_xs, 16>;
using X2_S = X2<Format::x2_s, 16>;
static_assert(X2_XXS::block_bytes == 4 + 4 + 3 * 32);
static_assert(X2_S::block_bytes == 4 + 8 + 3 * 32);

}  // namespace minim
