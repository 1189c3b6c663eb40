// SPDX-License-Identifier: Apache-2.0
// MXFP8: X.weight in E4M3, and a power of two for every 32 inputs.
#include "format/gather.h"
#include "format/integers.h"
#include "layouts/tensors.h"

namespace minim::layouts {
namespace {

bool detect_mxfp8(const Tensors& tensors) {
    if (!tensors.has_codes(".weight", "F8_E4M3")) return false;
    const Tensor* scales = find_scales(tensors);
    return scales != nullptr && has_exponents(*scales);
}

AssembledRows check_mxfp8(const Tensors& tensors) {
    const Tensor& codes = tensors.codes;
    const int64_t cols = tensors.cols;
    check_shape(codes, {tensors.rows, cols});
    tensors.skip_activation_scales();
    const Tensor& scales = *find_scales(tensors);
    check_exponents(scales, {tensors.rows, cols / k_mx_group});
    AssembledRows matrix = rows_of(tensors, Format::mxfp8, Method::mxfp8, k_mx_group);
    matrix.read = [&codes, &scales, cols](const RowRange& rows) {
        const auto code_rows = rows.read(codes, cols);
        const auto scale_rows = rows.read(scales, cols / k_mx_group);
        if (has_nan_e4m3(code_rows)) rows.fail_value(codes, "NaN");
        check_exponents(rows, scales, scale_rows);
        for (int64_t r = 0; r < rows.count; ++r)
            gather_mxfp8_row(code_rows.data() + r * cols, scale_rows.data() + r * (cols / k_mx_group), cols,
                             rows.out + r * rows.row_bytes);
    };
    return matrix;
}

}  // namespace

const Layout k_mxfp8 = {detect_mxfp8, check_mxfp8};

}  // namespace minim::layouts
