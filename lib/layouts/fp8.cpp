// SPDX-License-Identifier: Apache-2.0
// FP8: X.weight in E4M3, with a scale for every 128 x 128 numbers, for every row, or for the whole matrix; or stacks of
// experts with a scale for every 128 x 128 numbers.
#include <utility>

#include "format/gather.h"
#include "layouts/tensors.h"

namespace minim::layouts {
namespace {

struct Fp8 {
    const Tensor* codes;
    const Tensor* scales;
    int64_t cols;
    int64_t scale_rows;     // rows that share scales
    int64_t first_row = 0;  // in a stack, counted over all experts

    // Returns one scale for every 128 columns, from a row of scales.
    std::vector<float> scales_of(const Checkpoint& checkpoint, int64_t scale_row) const {
        const int64_t n_blocks = blocks_of(cols, k_scale_block);
        if (scale_rows == k_scale_block)
            return read_floats(checkpoint, *scales, scale_row * n_blocks, n_blocks);
        return std::vector<float>(n_blocks, read_floats(checkpoint, *scales, scale_row, 1).front());
    }

    void operator()(const RowRange& of_matrix) const {
        RowRange rows = of_matrix;
        rows.first += first_row;
        const auto code_rows = rows.read(*codes, cols);
        if (has_nan_e4m3(code_rows)) rows.fail_value(*codes, "NaN");
        std::vector<float> row_scales;
        int64_t scale_row = -1;
        for (int64_t r = 0; r < rows.count; ++r) {
            const int64_t row = (rows.first + r) / scale_rows;
            if (std::exchange(scale_row, row) != row) {
                row_scales = scales_of(rows.checkpoint, row);
                check_finite({rows.checkpoint, row, 1}, *scales, row_scales);
            }
            gather_fp8_row(code_rows.data() + r * cols, row_scales.data(), cols,
                           rows.out + r * rows.row_bytes);
        }
    }
};

AssembledRows check_fp8(const Tensors& tensors) {
    const int64_t rows = tensors.rows;
    const int64_t cols = tensors.cols;
    check_shape(tensors.codes, {rows, cols});
    tensors.skip_activation_scales();
    const Tensor* found = find_scales(tensors);
    const Tensor& scales = found != nullptr ? *found : tensors.required(".weight_scale");
    check_float(scales);
    const int64_t row_blocks = blocks_of(rows, k_scale_block);
    const int64_t col_blocks = blocks_of(cols, k_scale_block);
    AssembledRows matrix = rows_of(tensors, Format::fp8_e4m3_b128, Method::fp8);
    const auto with = [&](int64_t scale_rows) {
        matrix.read = Fp8{&tensors.codes, &scales, cols, scale_rows};
        return matrix;
    };
    if (is_one_number(scales)) return with(rows);
    if (has_shape(scales, {rows}) || has_shape(scales, {rows, 1})) return with(1);
    if (has_shape(scales, {row_blocks, col_blocks})) return with(k_scale_block);
    fail_file(Reason::shape, "tensor {} has shape {}; a scale for every {} x {} numbers is [{}, {}]",
              scales.name, shape_text(scales.shape), k_scale_block, k_scale_block, row_blocks, col_blocks);
}

AssembledRows check_fp8_stack(const Tensors& tensors) {
    const StackPart& part = tensors.part;
    check_shape(tensors.codes, {part.n, part.stack_rows, tensors.cols});
    const Tensor* scales = find_scales(tensors);
    if (scales == nullptr) fail_file(Reason::value, "tensor {}_scale_inv is missing", tensors.codes.name);
    check_float(*scales);
    check_shape(*scales,
                {part.n, blocks_of(part.stack_rows, k_scale_block), blocks_of(tensors.cols, k_scale_block)});
    if (part.stack_rows % k_scale_block != 0 || part.first_row % k_scale_block != 0)
        fail(Status::unsupported, "tensor {}: {} rows an expert are not a multiple of {}", tensors.codes.name,
             part.stack_rows, k_scale_block);
    AssembledRows matrix = rows_of(tensors, Format::fp8_e4m3_b128, Method::fp8);
    matrix.read = Fp8{&tensors.codes, scales, tensors.cols, k_scale_block,
                      part.index * part.stack_rows + part.first_row};
    return matrix;
}

}  // namespace

const Layout k_fp8 = {[](const Tensors& tensors) { return tensors.has_codes(".weight", "F8_E4M3"); },
                      check_fp8};
const Layout k_fp8_stack = {[](const Tensors& tensors) { return tensors.codes.type_name == "F8_E4M3"; },
                            check_fp8_stack};

}  // namespace minim::layouts
