// SPDX-License-Identifier: Apache-2.0
// Encodes matrices for quantised safetensors folders, whose codes and scales are tensors of their own. As in encode_rows.h the bytes
// depend on the arguments alone, numbers that are not finite are refused with their row and column, and the work is done on the
// caller's thread.
#pragma once

#include <cstdint>

#include "format/encode/encode_rows.h"

namespace minim {

// Rows of a matrix. `n_columns` is a multiple of the group that shares a scale.
struct EncodeFolderRows {
    const float* x;  // [n_rows, n_columns]
    int64_t n_rows;
    int64_t n_columns;
    const float* importance = nullptr;  // [n_columns] or null, as in EncodeRows
    EncodeEffort effort = EncodeEffort::full;
};

// Returns the factor of a matrix in NVFP4, from its largest magnitude: that brings it to the largest code times the largest E4M3 scale,
// 6 * 448. 1 for a matrix of zeros. Matrices that engines fuse (gate and up of an expert) must share one.
float nvfp4_factor(float largest_magnitude) noexcept;

// NVFP4: x is about e2m1(code) * e4m3(scale) * factor. codes: [n_rows, n_columns / 2], two in a byte, that of the even column in the low
// half. scales: [n_rows, n_columns / 16], E4M3. A group that is not zero has a scale that is not zero.
void encode_nvfp4_folder(const EncodeFolderRows& job, float factor, uint8_t* codes, uint8_t* scales);

// MXFP4: x is about e2m1(code) * 2^(scale - 127). codes: as above. scales: [n_rows, n_columns / 32], E8M0.
void encode_mxfp4_folder(const EncodeFolderRows& job, uint8_t* codes, uint8_t* scales);

// MXFP8: x is about e4m3(code) * 2^(scale - 127). codes: [n_rows, n_columns]. scales: [n_rows, n_columns / 32], E8M0: of the two powers of
// two that bring the largest magnitude of a group to the upper codes, the one with the smaller square error. Importance has no effect, as
// with FP8.
void encode_mxfp8_folder(const EncodeFolderRows& job, uint8_t* codes, uint8_t* scales);

// FP8 in blocks of 128 x 128, the last of them smaller: x is about e4m3(code) * scale. codes: [n_rows, n_columns], of any size.
// scales: [ceil(n_rows / 128), ceil(n_columns / 128)], the largest magnitude of the block / 448. Searching for scales gains less than
// 0.3 %, as the steps of E4M3 are relative; so importance has no effect.
void encode_fp8_folder(const EncodeFolderRows& job, uint8_t* codes, float* scales);

enum class ScaleType : uint8_t { f32, f16, bf16 };

// Integers that share a scale: x is about (code - zero) * scale.
struct IntegerGroups {
    int32_t bits;     // 4 or 8
    int64_t group;    // columns; 0: the whole row
    bool with_zeros;  // codes 0 … 2^bits - 1 and a zero in the same range; else signed codes and no zeros
    ScaleType scale_type;  // to which scales are rounded
};

// codes: [n_rows, n_columns], one in a byte, signed ones in two's complement. scales: [n_rows, groups], rounded to the type. zeros:
// [n_rows, groups], or null without zeros.
void encode_integers_folder(const EncodeFolderRows& job, const IntegerGroups& groups, uint8_t* codes,
                            float* scales, uint8_t* zeros);

}  // namespace minim
