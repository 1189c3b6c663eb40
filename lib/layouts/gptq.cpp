// SPDX-License-Identifier: Apache-2.0
// GPTQ: X.qweight [inputs / n, outputs] in words of n inputs, of 4 or 8 bits; X.qzeros in words of n outputs.
#include "layouts/integers.h"

namespace minim::layouts {
namespace {

// The tensor is transposed. It is read whole, or through the mapping, because each row would take thousands of read calls.
void read_gptq_codes(const Integers& of, const RowRange& rows, std::span<uint8_t> codes) {
    const checkpoint::View view = all_of(rows.checkpoint, *of.codes);
    const int64_t a_word = 32 / of.bits;
    for (int64_t k = 0; k < of.cols; ++k)
        for (int64_t r = 0; r < rows.count; ++r)
            codes[r * of.cols + k] = of.code_at(view.data, k / a_word * of.rows + rows.first + r, k % a_word);
}

int32_t gptq_zero_at(const Integers& of, const std::byte* data, int64_t row, int64_t group) {
    const int64_t a_word = 32 / of.bits;
    return of.code_at(data, group * (of.rows / a_word) + row / a_word, row % a_word);
}

AssembledRows check_gptq(const Tensors& tensors) {
    const Tensor& codes = tensors.codes;
    const int64_t rows = tensors.rows;
    const int64_t cols = tensors.cols;
    Integers gptq = beside_qweight(tensors);
    gptq.bits = static_cast<int32_t>(codes.shape.size() == 2 && cols > 0 ? codes.shape[0] * 32 / cols : 0);
    if (gptq.bits != 4 && gptq.bits != 8)
        fail_file(Reason::shape,
                  "tensor {} has shape {}; of {} inputs and {} outputs AWQ makes [{}, {}], GPTQ [{}, {}]",
                  codes.name, shape_text(codes.shape), cols, rows, cols, rows / 8, cols / 8, rows);
    check_tensor(codes, "I32", {gptq.words(cols), rows});
    add_qzeros(tensors, false, gptq);
    gptq.zero_bias = tensors.hints.gptq_zero_bias;
    gptq.read_codes = read_gptq_codes;
    gptq.zero_at = gptq_zero_at;
    return integer_rows(tensors, gptq);
}

}  // namespace

// The layouts before it in the table have taken other shapes.
const Layout k_gptq = {[](const Tensors& tensors) { return tensors.suffix == ".qweight"; }, check_gptq};

}  // namespace minim::layouts
