// SPDX-License-Identifier: Apache-2.0
// What layouts share: checks of tensors, and reading them.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "checkpoint/printable.h"
#include "layouts/layout.h"

namespace minim::layouts {

using checkpoint::Checkpoint;
using checkpoint::shape_text;
using checkpoint::Tensor;
using Shape = std::initializer_list<int64_t>;

inline constexpr int64_t k_scale_block = 128;  // rows and columns of a block with one FP8 scale
inline constexpr int64_t k_mx_group = 32;

int64_t blocks_of(int64_t count, int64_t block);

bool has_shape(const Tensor& tensor, Shape wanted);
bool is_one_number(const Tensor& tensor);
// Scales that are powers of two, one byte each.
bool has_exponents(const Tensor& tensor);

void check_shape(const Tensor& tensor, Shape wanted);
void check_tensor(const Tensor& tensor, std::string_view type, Shape wanted);
void check_float(const Tensor& tensor);
void check_exponents(const Tensor& tensor, Shape wanted);

// Returns the tensor codes_scale_inv or else codes_scale; null: there is neither.
const Tensor* find_scales(const Tensors& tensors);

// Returns a matrix of the shape that the tensors have. Throws unsupported if its rows are not whole blocks.
AssembledRows rows_of(const Tensors& tensors, Format format, std::optional<Method> method = {},
                      int64_t group = 0);

// Returns elements [first, first + count) of a tensor of floats.
std::vector<float> read_floats(const Checkpoint& checkpoint, const Tensor& tensor, int64_t first,
                               int64_t count);
checkpoint::View all_of(const Checkpoint& checkpoint, const Tensor& tensor);

// Throws format if a scale is NaN or infinity. Exponents: 255 is NaN in their standard.
void check_finite(const RowRange& rows, const Tensor& tensor, std::span<const float> values);
void check_exponents(const RowRange& rows, const Tensor& tensor, std::span<const std::byte> scales);

}  // namespace minim::layouts
