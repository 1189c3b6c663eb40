// SPDX-License-Identifier: Apache-2.0
// The weights of a matrix product, in the form that operations take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/format.h"

namespace minim::backend {

// Rows are split only at multiples of this number, and at whole panels (Backend::pack_rows_together). The outputs of a part are
// then whole blocks if the next operation quantises them as its input.
inline constexpr int64_t k_split_rows = 32;

// The parts of a matrix whose rows are not contiguous: part k has rows first_row[k] .. first_row[k + 1] - 1, which may be none.
// Parts begin at whole panels and at multiples of k_split_rows.
struct RowSplit {
    std::vector<int64_t> first_row;

    int64_t n_parts() const noexcept { return static_cast<int64_t>(first_row.size()) - 1; }
};

// A weight matrix W of y = W x, row after row: `rows` outputs, `cols` inputs.
struct Matrix {
    const std::byte* data = nullptr;
    Format format = Format::f32;
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t row_bytes = 0;
    float scale = 1.0F;   // factor of the whole tensor (NVFP4 files carry one), applied to y
    bool packed = false;  // the bytes are in the order that Backend::pack made
    // Set if the rows are split over NUMA nodes (HostMemory::n_nodes): part k is at part[k], and `data` is the first part.
    const RowSplit* split = nullptr;
    const std::byte* const* part = nullptr;

    // Returns the address of row r. The rows after it, up to the end of its part, follow directly.
    const std::byte* row(int64_t r) const noexcept {
        if (split == nullptr) return data + r * row_bytes;
        size_t k = 0;
        while (split->first_row[k + 1] <= r) ++k;
        return part[k] + (r - split->first_row[k]) * row_bytes;
    }
};

struct Vector {
    const float* data = nullptr;
    int64_t size = 0;
};

}  // namespace minim::backend
