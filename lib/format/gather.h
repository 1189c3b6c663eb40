// SPDX-License-Identifier: Apache-2.0
// Assembles rows of blocks from the separate tensors of a safetensors folder: codes, scales, zero points. No number changes.
// Tensors may have any address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace minim {

// Writes a row of FP8_E4M3_B128 from `cols` codes and a scale for every 128 of them.
void gather_fp8_row(const std::byte* codes, const float* scales, int64_t cols, std::byte* out) noexcept;

// Writes a row of NVFP4 from `cols` codes, two per byte, the low nibble first, and an E4M3 scale for every 16 of them.
// No scale may be NaN. A negative scale inverts the signs of its codes.
void gather_nvfp4_row(const std::byte* codes, const std::byte* scales, int64_t cols, std::byte* out) noexcept;

// Writes a row of MXFP4 from `cols` codes in the same order and an exponent for every 32 of them.
void gather_mxfp4_row(const std::byte* codes, const std::byte* scales, int64_t cols, std::byte* out) noexcept;

// A matrix in the GEMM layout of AutoAWQ: one row for each input, eight outputs in each 32-bit word.
struct AwqMatrix {
    const std::byte* codes;   // i32 [cols, rows / 8]
    const std::byte* zeros;   // i32 [cols / 128, rows / 8]
    const std::byte* scales;  // f16 [cols / 128, rows]
    int64_t rows;
    int64_t cols;
};

// Writes rows first … first + count of INT4_Z128, one after the other; both are multiples of 8.
void gather_awq_rows(const AwqMatrix& matrix, int64_t first, int64_t count, std::byte* out) noexcept;

// Returns whether any of the codes is NaN.
bool has_nan_e4m3(std::span<const std::byte> codes) noexcept;

}  // namespace minim
