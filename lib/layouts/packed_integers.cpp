// SPDX-License-Identifier: Apache-2.0
// INT4 and INT8 of compressed-tensors: X.weight_packed in words of 32 bits along a row, zero points in words along the
// outputs.
#include <algorithm>

#include "layouts/integers.h"

namespace minim::layouts {
namespace {

void read_packed_codes(const Integers& of, const RowRange& rows, std::span<uint8_t> codes) {
    uint8_t* to = codes.data();
    for (const std::byte byte : rows.read(*of.codes, 4 * of.words(of.cols))) {
        if (of.bits == 8) {
            *to++ = std::to_integer<uint8_t>(byte);
        } else {
            *to++ = std::to_integer<uint8_t>(byte & std::byte{15});
            *to++ = std::to_integer<uint8_t>(byte >> 4);
        }
    }
}

int32_t packed_zero_at(const Integers& of, const std::byte* data, int64_t row, int64_t group) {
    const int64_t a_word = 32 / of.bits;
    return of.code_at(data, row / a_word * of.n_groups + group, row % a_word);
}

const Tensor* find_stated_shape(const Tensors& tensors) {
    const Tensor* shape = tensors.optional(".weight_shape");
    if (shape != nullptr) check_shape(*shape, {2});
    if (shape != nullptr && shape->format != Format::i32 && shape->format != Format::i64)
        fail(Status::unsupported, "tensor {} is of type {}, not I32 or I64", shape->name, shape->type_name);
    return shape;
}

// Throws format if the two numbers of `shape` are not the rows and columns of the matrix.
void check_stated_shape(const Checkpoint& checkpoint, const Tensor& shape, const AssembledRows& matrix) {
    int64_t stated[2] = {};
    if (shape.format == Format::i64) {
        checkpoint.read(shape, 0, std::as_writable_bytes(std::span(stated)));
    } else {
        int32_t numbers[2];
        checkpoint.read(shape, 0, std::as_writable_bytes(std::span(numbers)));
        std::ranges::copy(numbers, stated);
    }
    if (stated[0] != matrix.rows || stated[1] != matrix.cols)
        fail_file(Reason::value, "tensor {} says [{}, {}], tensor {} is [{}, {}]", shape.name, stated[0],
                  stated[1], matrix.codes->name, matrix.rows, matrix.cols);
}

AssembledRows check_packed_integers(const Tensors& tensors) {
    const Tensor& codes = tensors.codes;
    const int64_t rows = tensors.rows;
    const int64_t cols = tensors.cols;
    const auto bits =
        static_cast<int32_t>(codes.shape.size() == 2 && cols > 0 ? codes.shape[1] * 32 / cols : 0);
    if (bits != 4 && bits != 8)
        fail(Status::unsupported,
             "tensor {} has shape {}: {} inputs of 4 or 8 bits make rows of {} or {} words", codes.name,
             shape_text(codes.shape), cols, cols / 8, cols / 4);
    check_shape(codes, {rows, cols * bits / 32});
    tensors.skip_activation_scales();
    const Tensor* shape = find_stated_shape(tensors);
    const Tensor& scales = tensors.required(".weight_scale");
    const int64_t n_groups = groups_of_rows(tensors, scales);
    const Tensor* zeros = tensors.optional(".weight_zero_point");
    if (zeros != nullptr) check_tensor(*zeros, "I32", {blocks_of(rows * bits, 32), n_groups});
    AssembledRows matrix = integer_rows(tensors, {.codes = &codes,
                                                  .rows = rows,
                                                  .cols = cols,
                                                  .bits = bits,
                                                  .scales = &scales,
                                                  .n_groups = n_groups,
                                                  .zeros = zeros,
                                                  .groups = find_groups(tensors, ".weight_g_idx"),
                                                  .read_codes = read_packed_codes,
                                                  .zero_at = packed_zero_at});
    if (shape != nullptr)
        matrix.read = [matrix, shape](const RowRange& part) {
            if (part.first == 0) check_stated_shape(part.checkpoint, *shape, matrix);
            matrix.read(part);
        };
    return matrix;
}

}  // namespace

const Layout k_packed_integers = {
    [](const Tensors& tensors) { return tensors.has_codes(".weight_packed", "I32"); }, check_packed_integers};

}  // namespace minim::layouts
