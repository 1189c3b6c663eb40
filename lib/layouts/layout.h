// SPDX-License-Identifier: Apache-2.0
// The layouts of quantised safetensors folders. A layout spreads a weight matrix over tensors of codes, scales and zero
// points, or stacks the matrices of experts with one row for each input. Reading turns each matrix into rows of one block
// format; no number changes.
//
// To add a layout:
// 1. Write a file with its Layout. mxfp4.cpp is a short one; integers.h has what layouts of whole numbers share.
// 2. Declare it below and add it to the table in layouts.cpp, before each layout that would detect its tensors too.
// 3. If the folder's quant_method is new, read it in quantization_config.cpp.
// 4. Add cases to tests/unit/layouts/ and a folder to tests/layouts/.
// If no block format holds its numbers exactly, add a format first (lib/format/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "format/format.h"
#include "layouts/declared.h"

namespace minim::layouts {

// Returns a tensor by its name, or null.
using FindTensor = std::function<const checkpoint::Tensor*(const std::string& name)>;

// One expert of a tensor [n, stack_rows, cols], or of a transposed one [n, cols, stack_rows].
struct StackPart {
    int64_t n = 0;
    int64_t index = 0;
    int64_t stack_rows = 0;
    int64_t first_row = 0;
    bool transposed = false;  // the stack has one row for each input
};

// The tensors of one matrix [rows, cols]. Finding a tensor marks it as known, so layouts ask only for their own.
struct Tensors {
    const FindTensor& find;
    std::string stem;  // X of X.weight; of a stack: its name
    std::string_view suffix;
    const checkpoint::Tensor& codes;  // is called stem + suffix
    int64_t rows;
    int64_t cols;
    const PackingHints& hints;
    StackPart part = {};

    bool has_codes(std::string_view with_suffix, std::string_view type) const;
    const checkpoint::Tensor* optional(std::string_view with_suffix) const;
    // Throws format if the tensor is missing.
    const checkpoint::Tensor& required(std::string_view with_suffix) const;
    // Marks scales and zero points of activations as known: they do not affect weights.
    void skip_activation_scales() const;
};

// Rows [first, first + count) of a matrix, for a layout to read.
struct RowRange {
    const checkpoint::Checkpoint& checkpoint;
    int64_t first;
    int64_t count;
    int64_t row_bytes = 0;
    std::byte* out = nullptr;

    // Returns the bytes of these rows in a tensor whose rows have `bytes_per_row` bytes.
    std::vector<std::byte> read(const checkpoint::Tensor& tensor, int64_t bytes_per_row) const;
    // Throws format: the tensor has `what` in these rows.
    [[noreturn]] void fail_value(const checkpoint::Tensor& tensor, std::string_view what) const;
};

// A matrix whose rows are assembled while they are read.
struct AssembledRows {
    Format format = Format::f32;  // of the rows
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t row_bytes = 0;
    const checkpoint::Tensor* codes = nullptr;
    std::optional<Method> method = {};  // nothing: not quantised
    int64_t group = 0;                  // inputs that share a scale; 0: of another shape
    // Reads at most k_rows_together rows.
    std::function<void(const RowRange& rows)> read = nullptr;
    // Returns the factor of the whole matrix. Throws format if it is no number to multiply by.
    std::function<float(const checkpoint::Checkpoint&)> factor = [](const auto&) { return 1.0F; };
};

struct Layout {
    // Returns whether the matrix is in this layout, by the names and types of its tensors.
    bool (*detect)(const Tensors& tensors);
    // Returns the matrix of a layout that was detected, and how its rows are read. Throws format (a tensor is missing, of
    // another shape, or contradicts the hints) and unsupported (a packing that is not read), naming the tensor.
    AssembledRows (*check)(const Tensors& tensors);
};

extern const Layout k_fp8, k_mxfp8, k_nvfp4, k_mxfp4, k_packed_integers, k_int8, k_awq, k_gptq;
extern const Layout k_transposed_stack, k_fp8_stack;

// Rows that are read together; their codes and scales nearly fit the first-level cache. For transposed tensors: as many
// as fill a cache line.
inline constexpr int64_t k_rows_together = 16;

// Returns the rows of the matrix [rows, cols] whose plain form would be called `name` (X.weight), or nothing if it is one
// plain tensor or absent. Throws what Layout::check throws, and format if a file of the folder declares another
// quantisation.
std::optional<AssembledRows> find_assembled(const FindTensor& find, const std::string& name, int64_t rows,
                                            int64_t cols, const PackingHints& hints = {});

// Returns the same for one expert of a stack called `name`.
std::optional<AssembledRows> find_stacked(const FindTensor& find, const std::string& name, int64_t rows,
                                          int64_t cols, const StackPart& part,
                                          const PackingHints& hints = {});

// Reads bytes [at, at + out.size()) of the assembled rows. Any thread. Throws what reading throws, and format if a number
// is NaN, a group does not exist, a zero point contradicts the configuration, or a stated shape differs from the tensors'.
void read_assembled(const checkpoint::Checkpoint& checkpoint, const AssembledRows& matrix, uint64_t at,
                    std::span<std::byte> out);

}  // namespace minim::layouts
