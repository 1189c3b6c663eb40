// SPDX-License-Identifier: Apache-2.0
// AutoAWQ: X.qweight [inputs, outputs / 8] in words of eight outputs, and X.qzeros in the same words.
#include <algorithm>

#include "format/gather.h"
#include "layouts/integers.h"

namespace minim::layouts {
namespace {

constexpr int64_t k_word_rows = 8;
// The four bits of output j begin at bit 4 * k_awq_order[j] of a word.
constexpr int k_awq_order[k_word_rows] = {0, 4, 1, 5, 2, 6, 3, 7};

bool detect_awq(const Tensors& tensors) {
    return tensors.suffix == ".qweight" &&
           has_shape(tensors.codes, {tensors.cols, blocks_of(tensors.rows, k_word_rows)});
}

// Returns the code of an output from a tensor with a row of words for each input or group.
uint8_t awq_code_at(const Integers& of, const std::byte* data, int64_t input, int64_t output) {
    return of.code_at(data, input * (of.rows / k_word_rows) + output / k_word_rows,
                      k_awq_order[output % k_word_rows]);
}

// The tensor is transposed: as in gptq.cpp.
void read_awq_codes(const Integers& of, const RowRange& rows, std::span<uint8_t> codes) {
    const checkpoint::View view = all_of(rows.checkpoint, *of.codes);
    for (int64_t k = 0; k < of.cols; ++k)
        for (int64_t r = 0; r < rows.count; ++r)
            codes[r * of.cols + k] = awq_code_at(of, view.data, k, rows.first + r);
}

int32_t awq_zero_at(const Integers& of, const std::byte* data, int64_t row, int64_t group) {
    return awq_code_at(of, data, group, row);
}

// Gives the same rows as IntegerReader, but faster. Whole words are read.
void read_awq_z128(const Integers& of, const RowRange& rows) {
    const checkpoint::View codes = all_of(rows.checkpoint, *of.codes);
    const checkpoint::View zeros = all_of(rows.checkpoint, *of.zeros);
    const checkpoint::View scales = all_of(rows.checkpoint, *of.scales);
    const AwqMatrix matrix = {codes.data, zeros.data, scales.data, of.rows, of.cols};
    const int64_t before = rows.first % k_word_rows;
    const int64_t count = blocks_of(before + rows.count, k_word_rows) * k_word_rows;
    if (count == rows.count) return gather_awq_rows(matrix, rows.first, count, rows.out);
    std::vector<std::byte> whole(count * rows.row_bytes);
    gather_awq_rows(matrix, rows.first - before, count, whole.data());
    std::copy_n(whole.data() + before * rows.row_bytes, rows.count * rows.row_bytes, rows.out);
}

AssembledRows check_awq(const Tensors& tensors) {
    Integers awq = beside_qweight(tensors);
    if (tensors.codes.type_name != "I32")
        check_tensor(tensors.codes, "I32", {tensors.cols, tensors.rows / k_word_rows});
    add_qzeros(tensors, true, awq);
    awq.read_codes = read_awq_codes;
    awq.zero_at = awq_zero_at;
    AssembledRows matrix = integer_rows(tensors, awq);
    if (matrix.format == Format::int4_z128 && awq.group() == 128 && awq.scales->format == Format::f16 &&
        awq.groups == nullptr)
        matrix.read = [awq](const RowRange& rows) { read_awq_z128(awq, rows); };
    return matrix;
}

}  // namespace

const Layout k_awq = {detect_awq, check_awq};

}  // namespace minim::layouts
