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

// Writes a row in `format`: Q4_0 (if all zero points are 8), INT4_Z32, INT4_W32, INT4_Z128, Q8_0 (if all are 128), INT8_Z32.
void write_integer_row(Format format, const IntegerRow& row, std::byte* out) noexcept;

// Writes a row of MXFP8 from `cols` codes and an exponent for every 32 of them.
void gather_mxfp8_row(const std::byte* codes, const std::byte* scales, int64_t cols, std::byte* out) noexcept;

}  // namespace minim
