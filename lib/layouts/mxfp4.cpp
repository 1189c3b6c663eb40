// SPDX-License-Identifier: Apache-2.0
// MXFP4: X.weight or X.weight_packed with two E2M1 codes a byte, and a power of two for every 32 of them.
#include "format/gather.h"
#include "layouts/tensors.h"

namespace minim::layouts {
namespace {

// Other packings of the same tensors are before it in the table.
bool detect_mxfp4(const Tensors& tensors) {
    return tensors.has_codes(".weight", "U8") || tensors.suffix == ".weight_packed";
}

AssembledRows check_mxfp4(const Tensors& tensors) {
    const Tensor& codes = tensors.codes;
    if (codes.type_name != "U8")
        fail(Status::unsupported, "tensor {} is of type {}: packed in a way that is not supported",
             codes.name, codes.type_name);
    const int64_t cols = tensors.cols;
    const Tensor& scales = tensors.required(".weight_scale");
    check_tensor(codes, "U8", {tensors.rows, cols / 2});
    check_exponents(scales, {tensors.rows, cols / k_mx_group});
    tensors.skip_activation_scales();
    AssembledRows matrix = rows_of(tensors, Format::mxfp4, Method::mxfp4, k_mx_group);
    matrix.read = [&codes, &scales, cols](const RowRange& rows) {
        const auto code_rows = rows.read(codes, cols / 2);
        const auto scale_rows = rows.read(scales, cols / k_mx_group);
        check_exponents(rows, scales, scale_rows);
        for (int64_t r = 0; r < rows.count; ++r)
            gather_mxfp4_row(code_rows.data() + r * (cols / 2), scale_rows.data() + r * (cols / k_mx_group),
                             cols, rows.out + r * rows.row_bytes);
    };
    return matrix;
}

}  // namespace

const Layout k_mxfp4 = {detect_mxfp4, check_mxfp4};

}  // namespace minim::layouts
