// SPDX-License-Identifier: Apache-2.0
// Encodes rows of weights in the formats of model files, with the smallest weighted square error that a search finds. The bytes
// depend on the arguments alone: not on the instruction set (MINIM_CPU), and not on which rows one call encodes together.
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/format.h"

namespace minim {

// Increases with every change of the encoders that changes bytes.
inline constexpr int32_t k_encoder_version = 2;

enum class EncodeEffort : uint8_t {
    full,
    fast,  // fewer scales and codebook entries are tried: several times faster, a few per cent less exact
};

struct EncodeRows {
    Format format;
    const float* x;  // [n_rows, n_columns]
    int64_t n_rows;
    int64_t n_columns;  // a multiple of the format's block
    // [n_columns] or null: the weight of each column's square errors, not negative; mean squares of the inputs, for example. Only
    // their ratios matter. Null: all columns count alike.
    const float* importance = nullptr;
    std::byte* out = nullptr;  // n_rows * row_bytes(format, n_columns)
    EncodeEffort effort = EncodeEffort::full;
    // NVFP4 alone: what decoded rows are multiplied by, which model files keep apart (nvfp4_factor() in encode/folders.h).
    float factor = 1.0F;
};

// Returns whether encode_rows() has the format.
bool can_encode(Format format) noexcept;

// Returns whether the format is too coarse to be of use without importance.
bool needs_importance(Format format) noexcept;

// Encodes on the caller's thread. Throws unsupported for a format without an encoder; invalid for rows that are not whole blocks,
// for numbers that are not finite, and for weights whose scale exceeds what the format can hold. The message names row and column,
// counted from 0.
void encode_rows(const EncodeRows& job);

}  // namespace minim
