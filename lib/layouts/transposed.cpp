// SPDX-License-Identifier: Apache-2.0
// Stacks of experts of floats with inputs before outputs: [experts, inputs, outputs].
#include <cstring>

#include "layouts/tensors.h"

namespace minim::layouts {
namespace {

AssembledRows check_transposed(const Tensors& tensors) {
    const Tensor& codes = tensors.codes;
    const StackPart part = tensors.part;
    const int64_t cols = tensors.cols;
    check_shape(codes, {part.n, cols, part.stack_rows});
    check_float(codes);
    AssembledRows matrix = rows_of(tensors, *codes.format);
    matrix.read = [&codes, part, cols, size = traits(*codes.format).block_bytes](const RowRange& rows) {
        const auto expert_bytes = static_cast<uint64_t>(cols * part.stack_rows * size);
        const checkpoint::View view =
            rows.checkpoint.view(codes, static_cast<uint64_t>(part.index) * expert_bytes, expert_bytes);
        for (int64_t k = 0; k < cols; ++k)
            for (int64_t r = 0; r < rows.count; ++r)
                std::memcpy(rows.out + r * rows.row_bytes + k * size,
                            view.data + (k * part.stack_rows + part.first_row + rows.first + r) * size, size);
    };
    return matrix;
}

}  // namespace

const Layout k_transposed_stack = {[](const Tensors& tensors) { return tensors.part.transposed; },
                                   check_transposed};

}  // namespace minim::layouts
