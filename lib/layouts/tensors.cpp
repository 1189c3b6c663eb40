// SPDX-License-Identifier: Apache-2.0
#include "layouts/tensors.h"

#include <algorithm>
#include <cmath>

namespace minim::layouts {

int64_t blocks_of(int64_t count, int64_t block) {
    return (count + block - 1) / block;
}

bool Tensors::has_codes(std::string_view with_suffix, std::string_view type) const {
    return suffix == with_suffix && codes.type_name == type;
}

const Tensor* Tensors::optional(std::string_view with_suffix) const {
    return find(stem + std::string(with_suffix));
}

const Tensor& Tensors::required(std::string_view with_suffix) const {
    const Tensor* tensor = optional(with_suffix);
    if (tensor == nullptr) fail_file(Reason::value, "tensor {}{} is missing", stem, with_suffix);
    return *tensor;
}

void Tensors::skip_activation_scales() const {
    for (const char* name : {".input_scale", ".activation_scale", ".input_global_scale", ".input_zero_point"})
        static_cast<void>(optional(name));
}

bool has_shape(const Tensor& tensor, Shape wanted) {
    return std::ranges::equal(tensor.shape, wanted);
}

bool is_one_number(const Tensor& tensor) {
    return has_shape(tensor, {}) || has_shape(tensor, {1}) || has_shape(tensor, {1, 1});
}

bool has_exponents(const Tensor& tensor) {
    return tensor.type_name == "U8" || tensor.type_name == "F8_E8M0";
}

void check_shape(const Tensor& tensor, Shape wanted) {
    if (!has_shape(tensor, wanted))
        fail_file(Reason::shape, "tensor {} has shape {}, {} is asked for", tensor.name,
                  shape_text(tensor.shape), shape_text(wanted));
}

void check_tensor(const Tensor& tensor, std::string_view type, Shape wanted) {
    check_shape(tensor, wanted);
    if (tensor.type_name != type)
        fail(Status::unsupported, "tensor {} is of type {}, not {}", tensor.name, tensor.type_name, type);
}

void check_float(const Tensor& tensor) {
    if (tensor.format != Format::f32 && tensor.format != Format::f16 && tensor.format != Format::bf16)
        fail(Status::unsupported, "tensor {} is of type {}; scales are F32, F16 or BF16", tensor.name,
             tensor.type_name);
}

void check_exponents(const Tensor& tensor, Shape wanted) {
    check_shape(tensor, wanted);
    if (!has_exponents(tensor))
        fail(Status::unsupported, "tensor {} is of type {}, not U8 or F8_E8M0", tensor.name,
             tensor.type_name);
}

const Tensor* find_scales(const Tensors& tensors) {
    const Tensor* inverse = tensors.find(tensors.codes.name + "_scale_inv");
    return inverse != nullptr ? inverse : tensors.find(tensors.codes.name + "_scale");
}

AssembledRows rows_of(const Tensors& tensors, Format format, std::optional<Method> method, int64_t group) {
    uint64_t bytes = 0;
    if (!row_bytes(format, static_cast<uint64_t>(tensors.cols), bytes)) {
        fail(Status::unsupported, "tensor {}: rows of {} inputs are not a multiple of {}", tensors.codes.name,
             tensors.cols, traits(format).block_elems);
    }
    return {.format = format,
            .rows = tensors.rows,
            .cols = tensors.cols,
            .row_bytes = static_cast<int64_t>(bytes),
            .codes = &tensors.codes,
            .method = method,
            .group = group};
}

std::vector<std::byte> RowRange::read(const Tensor& tensor, int64_t bytes_per_row) const {
    std::vector<std::byte> bytes(count * bytes_per_row);
    checkpoint.read(tensor, static_cast<uint64_t>(first * bytes_per_row), bytes);
    return bytes;
}

std::vector<float> read_floats(const Checkpoint& checkpoint, const Tensor& tensor, int64_t first,
                               int64_t count) {
    const int64_t size = traits(*tensor.format).block_bytes;
    std::vector<std::byte> stored(count * size);
    checkpoint.read(tensor, static_cast<uint64_t>(first * size), stored);
    std::vector<float> values(count);
    traits(*tensor.format).decode_row(stored.data(), count, values.data());
    return values;
}

checkpoint::View all_of(const Checkpoint& checkpoint, const Tensor& tensor) {
    return checkpoint.view(tensor, 0, tensor.bytes);
}

void RowRange::fail_value(const Tensor& tensor, std::string_view what) const {
    fail_file(Reason::value, "tensor {} has {} in rows {} to {}", tensor.name, what, first,
              first + count - 1);
}

void check_finite(const RowRange& rows, const Tensor& tensor, std::span<const float> values) {
    for (const float value : values)
        if (!std::isfinite(value)) rows.fail_value(tensor, std::isnan(value) ? "NaN" : "infinity");
}

void check_exponents(const RowRange& rows, const Tensor& tensor, std::span<const std::byte> scales) {
    if (std::ranges::find(scales, std::byte{0xFF}) != scales.end()) rows.fail_value(tensor, "NaN");
}

}  // namespace minim::layouts
