// Rows of whole numbers with scales and zero points, as quantised folders keep them, written as rows of a block format. No number
// changes, but for scales of F16 formats: the caller sees to it that they are F16 numbers.
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

// `format`: Q4_0 (all zero points 8), INT4_Z32, INT4_W32, INT4_Z128, Q8_0 (all zero points 128), INT8_Z32.
void write_integer_row(Format format, const IntegerRow& row, std::byte* out) noexcept;

// A row of MXFP8 from `cols` codes and an exponent for every 32 of them.
void gather_mxfp8_row(const std::byte* codes, const std::byte* scales, int64_t cols, std::byte* out) noexcept;

}  // namespace minim
