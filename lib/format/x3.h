// SPDX-License-Identifier: Apache-2.0
// X3_XXS and X3_S: the unpacked formats of IQ3_XXS and IQ3_S (format/expand.h), 256 elements of four bits each: an index into
// the sixteen signed magnitudes, in ascending order.
//
//   0  d       f32
//   4  scales  4 bytes: nibble j%2 of byte j/2 scales elements 32j … 32j+31
//   8  codes   128 bytes: 16 bytes hold 32 elements, the low nibbles the first 16 of them
//
//   X3_XXS: W = d * (0.5 + scale) / 2 * value, of -62, -52, -44, -36 ... -4, 4, 12 ... 62
//   X3_S:   W = d * (1 + 2 * scale) * value, of -15, -13 ... 15
//   Both give the same bits as decoded from the IQ3 formats.
//
// Pinned by tests/unit/format/expand_test.cpp
#pragma once

#include <cstdint>

#include "base/platform.h"
#include "format/block_reader.h"
#include "format/codebooks.h"
#include "format/format.h"
#include "format/table.h"

namespace minim {

// Code 8 + k has magnitude k as its value; the values of codes c and 15 - c are opposite.
constexpr Table<int8_t, 16> x3_values(const Table<int8_t, 8>& magnitudes) {
    Table<int8_t, 16> values{};
    for (size_t k = 0; k < 8; ++k) {
        values.data[8 + k] = magnitudes.data[k];
        values.data[7 - k] = static_cast<int8_t>(-magnitudes.data[k]);
    }
    return values;
}
inline constexpr auto k_x3xxs_values = x3_values(codebooks::k_iq3xxs_magnitudes);

struct X3_XXS {
    static constexpr Format format = Format::x3_xxs;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 136;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int scales_at = 4;
    static constexpr int codes_at = 8;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        constexpr auto k_values = k_x3xxs_values;
        const float d = load_f32(block + d_at);
        for (int e = 0; e < 256; ++e) {
            const auto group = static_cast<float>(nibble(block[scales_at + e / 64], e / 32 % 2));
            const float scale = d * (0.5F + group) * 0.5F;
            out[e] = scale * static_cast<float>(k_values.data[code4_of_32(block + codes_at, e)]);
        }
    }
};
static_assert(X3_XXS::block_bytes == 4 + 4 + 128);

struct X3_S {
    static constexpr Format format = Format::x3_s;
    static constexpr int block_elems = 256;
    static constexpr int block_bytes = 136;
    static constexpr int row_header_bytes = 0;
    static constexpr int d_at = 0;
    static constexpr int scales_at = 4;
    static constexpr int codes_at = 8;

    MINIM_HOST_DEVICE static void decode_block(const uint8_t* block, float /*row_scale*/, float* out) {
        const float d = load_f32(block + d_at);
        for (int e = 0; e < 256; ++e) {
            const float scale = d * static_cast<float>(1 + 2 * nibble(block[scales_at + e / 64], e / 32 % 2));
            out[e] = scale * static_cast<float>(2 * code4_of_32(block + codes_at, e) - 15);
        }
    }
};
static_assert(X3_S::block_bytes == 4 + 4 + 128);

}  // namespace minim
