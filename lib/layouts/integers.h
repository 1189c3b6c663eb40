// SPDX-License-Identifier: Apache-2.0
// What layouts of whole numbers share: W[n, k] = scale[n, group of k] * (code[n, k] - zero[n, group of k]).
#pragma once

#include <cstdint>
#include <span>

#include "layouts/tensors.h"

namespace minim::layouts {

struct Integers {
    const Tensor* codes;
    int64_t rows;
    int64_t cols;
    int32_t bits;
    const Tensor* scales;
    int64_t n_groups;                 // scales of a row
    const Tensor* zeros = nullptr;    // zero points; null: each is the middle value
    const Tensor* groups = nullptr;   // the group of each input, if these are not in order
    int32_t zero_bias = 0;            // added to each zero point
    bool has_inputs_outside = false;  // scales are [groups, rows]
    // Reads the codes of the rows, one row after the other.
    void (*read_codes)(const Integers& of, const RowRange& rows, std::span<uint8_t> codes) = nullptr;
    // Returns zero point [row, group] from the bytes of `zeros`.
    int32_t (*zero_at)(const Integers& of, const std::byte* data, int64_t row, int64_t group) = nullptr;

    int64_t group() const { return cols / n_groups; }         // inputs that share a scale
    int64_t words(int64_t n) const { return n * bits / 32; }  // of n codes
    // Returns code i of a word.
    uint8_t code_at(const std::byte* data, int64_t word, int64_t i) const;
};

// Returns the groups of a row, given scales of shape [rows, groups] or [rows], or one scale for the whole matrix.
int64_t groups_of_rows(const Tensors& tensors, const Tensor& scales);

// Returns a tensor with the group of each input; null: there is none.
const Tensor* find_groups(const Tensors& tensors, std::string_view suffix);

// For X.qweight of AutoAWQ and GPTQ, whose tensors have one row for each input or group: returns it with X.scales.
Integers beside_qweight(const Tensors& tensors);
// Adds X.qzeros and X.g_idx. Throws unsupported if codes fill no whole words.
void add_qzeros(const Tensors& tensors, bool is_required, Integers& integers);

// Returns the matrix in the smallest format that holds its numbers exactly. Throws as Layout::check.
AssembledRows integer_rows(const Tensors& tensors, const Integers& integers);

}  // namespace minim::layouts
