// SPDX-License-Identifier: Apache-2.0
// Describes a weight independently of its place; everything is known from the checkpoint's headers. Planners,
// counters and loaders work on lists of specs; only the architecture (model/) knows the meaning of a role.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "checkpoint/tensor.h"
#include "format/format.h"

namespace minim::layouts {
struct AssembledRows;  // layout.h
}

namespace minim::weights {

// How operations use a weight.
enum class Use : uint8_t {
    rows,     // a matrix that is read one row at a time or in float: embedding, router
    product,  // a matrix of linear() or experts(), which a device may pack
    vector,   // floats: norms and biases
};

// Where the columns of a weight are in the rows of its source, if that has more columns.
struct ColumnCut {
    int64_t first_byte = 0;  // of the first block in a row
    int64_t row_bytes = 0;   // of a row of the source
};

// The source of a weight's bytes.
struct WeightSource {
    const checkpoint::Tensor* tensor = nullptr;  // has the rows, or the codes of an assembled matrix
    uint64_t offset = 0;                         // of the first row in that tensor, in bytes
    // Set if codes and scales are separate tensors.
    std::shared_ptr<const layouts::AssembledRows> assembled = nullptr;
    // The factor of the whole matrix is element `factor_index` of this tensor; null: 1.
    const checkpoint::Tensor* factor = nullptr;
    int64_t factor_index = 0;
    // Added, in float, to each number of a vector: 1 for weights of norms that are stored less 1.
    float added = 0.0F;
    // Set for some columns of a matrix (narrow.h): each row is cut out of one of the source. Row headers stay.
    std::optional<ColumnCut> columns = {};
};

// A matrix of `rows` outputs and `cols` inputs, or a vector: one row of float.
struct WeightSpec {
    int32_t role = 0;     // defined by the architecture
    int32_t layer = -1;   // -1: of no layer
    int32_t expert = -1;  // -1: of no expert
    Use use = Use::rows;
    Format format = Format::f32;
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t row_bytes = 0;
    WeightSource source = {};

    uint64_t bytes() const noexcept { return static_cast<uint64_t>(rows * row_bytes); }
    bool is_expert() const noexcept { return expert >= 0; }
    // Returns whether the source has the bytes as the weight has them: rows one after the other.
    bool is_contiguous() const noexcept { return source.assembled == nullptr && !source.columns; }
    // Returns the bytes of a row of the source.
    int64_t source_row_bytes() const noexcept {
        return source.columns ? source.columns->row_bytes : row_bytes;
    }
    // Returns the position in the source of the row that has byte `at` of the weight; of the byte itself if no columns are cut.
    uint64_t source_at(uint64_t at) const noexcept {
        if (!source.columns) return source.offset + at;
        return source.offset +
               at / static_cast<uint64_t>(row_bytes) * static_cast<uint64_t>(source_row_bytes());
    }
};

}  // namespace minim::weights
