// SPDX-License-Identifier: Apache-2.0
// NVFP4: two E2M1 codes a byte, an E4M3 scale for every 16 of them, and a factor of the whole matrix. ModelOpt writes X.weight
// and multiplies by X.weight_scale_2; compressed-tensors writes X.weight_packed and divides by X.weight_global_scale.
#include <cmath>

#include "format/gather.h"
#include "layouts/tensors.h"

namespace minim::layouts {
namespace {

constexpr int64_t k_nvfp4_group = 16;

bool detect_nvfp4(const Tensors& tensors) {
    if (tensors.suffix == ".weight_packed") return tensors.optional(".weight_global_scale") != nullptr;
    if (!tensors.has_codes(".weight", "U8")) return false;
    if (tensors.optional(".weight_scale_2") != nullptr) return true;
    const Tensor* scales = tensors.optional(".weight_scale");
    return scales != nullptr && scales->type_name == "F8_E4M3";
}

// A factor of 0 is accepted: all weights are then 0.
float read_factor(const Checkpoint& checkpoint, const Tensor& factor, bool divides) {
    const float value = read_floats(checkpoint, factor, 0, 1).front();
    if (!std::isfinite(value) || value < 0.0F || (divides && value == 0.0F))
        fail_file(Reason::value, "tensor {} is {}", factor.name, value);
    return divides ? 1.0F / value : value;
}

AssembledRows check_nvfp4(const Tensors& tensors) {
    const Tensor& codes = tensors.codes;
    const int64_t cols = tensors.cols;
    const bool divides = tensors.suffix == ".weight_packed";
    const Tensor& factor = tensors.required(divides ? ".weight_global_scale" : ".weight_scale_2");
    const Tensor& scales = tensors.required(".weight_scale");
    check_tensor(codes, "U8", {tensors.rows, cols / 2});
    check_tensor(scales, "F8_E4M3", {tensors.rows, cols / k_nvfp4_group});
    if (factor.format != Format::f32 || factor.bytes != sizeof(float))
        fail_file(Reason::shape, "tensor {} ({} {}) is not one F32 number", factor.name, factor.type_name,
                  shape_text(factor.shape));
    tensors.skip_activation_scales();
    AssembledRows matrix = rows_of(tensors, Format::nvfp4, Method::nvfp4, k_nvfp4_group);
    matrix.factor = [&factor, divides](const Checkpoint& checkpoint) {
        return read_factor(checkpoint, factor, divides);
    };
    matrix.read = [&codes, &scales, cols](const RowRange& rows) {
        const auto code_rows = rows.read(codes, cols / 2);
        const auto scale_rows = rows.read(scales, cols / k_nvfp4_group);
        if (has_nan_e4m3(scale_rows)) rows.fail_value(scales, "NaN");
        for (int64_t r = 0; r < rows.count; ++r)
            gather_nvfp4_row(code_rows.data() + r * (cols / 2),
                             scale_rows.data() + r * (cols / k_nvfp4_group), cols,
                             rows.out + r * rows.row_bytes);
    };
    return matrix;
}

}  // namespace

const Layout k_nvfp4 = {detect_nvfp4, check_nvfp4};

}  // namespace minim::layouts
