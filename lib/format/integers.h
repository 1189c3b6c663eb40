// SPDX-License-Identifier: Apache-2.0
// Writes rows of integers with scales and zero points, from quantised folders, as rows of a block format. No number changes. For
// formats with F16 scales, the caller must make sure that the scales are F16 numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/format.h"

namespace minim {

// W[k] = scale[k / group] * (code[k] - zero[k / group]).
struct IntegerRow {
    std::span<const uint8_t> codes;  // [cols], 0 … 15 or 0 … 255
    std::span<const float> scales;   // [cols / group]
    std::span<const int16_t> zeros;  // [cols / group]
    int64_t group = 0;               // inputs that share a scale: a multiple of the format's block
};

// A scale and a zero point as INT4_Z… and INT8_Z… hold them. The scale's sign bit is the highest bit of the zero point + 1, so
// the codes of a negative scale are mirrored: each is stored as code XOR code_mask.
struct ScaleAndZero {
    uint16_t d;
    uint8_t zero;
    uint8_t code_mask;
};
// `d`: an F16 number; zero: 0 … 2^bits.
ScaleAndZero pack_zero(uint16_t d, int32_t zero, int bits) noexcept;

// Returns whether a format of integers holds scales as F32, not F16.
bool has_f32_scales(Format format) noexcept;

// Writes a row in `format`: one of INT4_… and INT8_…, Q4_0 or Q8_0. All zero points of the symmetric formats (…_S…, …_ROW, Q4_0,
// Q8_0) are 8 or 128; …_ROW has one group.
void write_integer_row(Format format, const IntegerRow& row, std::byte* out) noexcept;

// Writes a row of MXFP8 from `cols` codes and an exponent for every 32 of them.
void gather_mxfp8_row(const std::byte* codes, const std::byte* scales, int64_t cols, std::byte* out) noexcept;

}  // namespace minim
