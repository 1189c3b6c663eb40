// SPDX-License-Identifier: Apache-2.0
// INT8 of compressed-tensors and Quark: X.weight in signed bytes, with scales of groups, rows or the whole matrix.
#include "layouts/integers.h"

namespace minim::layouts {
namespace {

constexpr std::byte k_flip{0x80};  // adds 128 to a signed byte

void read_int8_codes(const Integers& of, const RowRange& rows, std::span<uint8_t> codes) {
    size_t i = 0;
    for (const std::byte byte : rows.read(*of.codes, of.cols))
        codes[i++] = std::to_integer<uint8_t>(byte ^ k_flip);
}

int32_t int8_zero_at(const Integers& of, const std::byte* data, int64_t row, int64_t group) {
    const bool is_per_row = of.zeros->bytes == static_cast<uint64_t>(of.rows * of.n_groups);
    return std::to_integer<int32_t>(data[is_per_row ? row * of.n_groups + group : 0] ^ k_flip);
}

AssembledRows check_int8(const Tensors& tensors) {
    check_shape(tensors.codes, {tensors.rows, tensors.cols});
    tensors.skip_activation_scales();
    const Tensor& scales = tensors.required(".weight_scale");
    const int64_t n_groups = groups_of_rows(tensors, scales);
    const Tensor* zeros = tensors.optional(".weight_zero_point");
    if (zeros != nullptr) {
        if (!is_one_number(*zeros) && !has_shape(*zeros, {tensors.rows}))
            check_shape(*zeros, {tensors.rows, n_groups});
        if (zeros->type_name != "I8")
            fail(Status::unsupported, "tensor {} is of type {}, not I8", zeros->name, zeros->type_name);
    }
    return integer_rows(tensors, {.codes = &tensors.codes,
                                  .rows = tensors.rows,
                                  .cols = tensors.cols,
                                  .bits = 8,
                                  .scales = &scales,
                                  .n_groups = n_groups,
                                  .zeros = zeros,
                                  .read_codes = read_int8_codes,
                                  .zero_at = int8_zero_at});
}

}  // namespace

const Layout k_int8 = {[](const Tensors& tensors) { return tensors.has_codes(".weight", "I8"); }, check_int8};

}  // namespace minim::layouts
