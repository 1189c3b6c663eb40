// SPDX-License-Identifier: Apache-2.0
// The weights of a matrix product, in the form that operations take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/format.h"

namespace minim::backend {

// Rows in several blocks of memory: data[k] has rows first_row[k] .. first_row[k + 1] - 1, which may be none. Blocks begin at
// whole panels (Backend::pack_rows_together) and at multiples of k_split_rows, so that the outputs of a block are whole blocks
// of the next operation's quantised input.
struct RowBlocks {
    std::vector<int64_t> first_row;
    std::vector<const std::byte*> data;
};
inline constexpr int64_t k_split_rows = 32;

// A weight matrix W of y = W x, row after row: `rows` outputs, `cols` inputs.
struct Matrix {
    const std::byte* data = nullptr;
    Format format = Format::f32;
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t row_bytes = 0;
    float scale = 1.0F;                 // factor of the whole tensor (NVFP4 files carry one), applied to y
    bool packed = false;                // the bytes are in the order that Backend::pack made
    const RowBlocks* blocks = nullptr;  // null: the rows are contiguous; else `data` is the first block

    // Returns the address of row r. The rows after it, up to the end of its block, follow directly.
    const std::byte* row(int64_t r) const noexcept {
        if (blocks == nullptr) return data + r * row_bytes;
        int64_t k = 0;
        while (blocks->first_row[k + 1] <= r) ++k;
        return blocks->data[k] + (r - blocks->first_row[k]) * row_bytes;
    }
};

struct Vector {
    const float* data = nullptr;
    int64_t size = 0;
};

}  // namespace minim::backend
