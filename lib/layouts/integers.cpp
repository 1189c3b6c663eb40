// SPDX-License-Identifier: Apache-2.0
#include "layouts/integers.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "format/integers.h"

namespace minim::layouts {
namespace {

// Scales of BF16 are stored as F16, multiplied by 256, so that none above 2^-22 loses a bit. The factor of the matrix
// divides by 256 again.
constexpr float k_bf16_scale_up = 256.0F;

std::string declared_text(const PackingHints& hints) {
    return hints.text.empty() ? "config.json" : "config.json (" + hints.text + ")";
}

void check_against_hints(const PackingHints& hints, const Integers& found) {
    const int64_t group = found.group();
    const int64_t whole_row = group == found.cols ? -1 : group;
    const bool is_declared = std::ranges::any_of(hints.groups, [&](const PackingHints::Group& one) {
        return one.bits == found.bits && (one.size == group || one.size == whole_row);
    });
    if (!hints.groups.empty() && !is_declared)
        fail_file(Reason::value, "tensor {} holds {} bits in groups of {} inputs, which {} does not declare",
                  found.codes->name, found.bits, group, declared_text(hints));
}

// Returns the smallest format that represents these numbers.
Format integer_format(const Integers& found, bool is_symmetric) {
    const int64_t cols = found.cols;
    const int64_t group = found.group();
    const bool is_small = found.bits == 4;
    // For shorter rows, an F16 scale in each block is smaller.
    const bool is_row = found.n_groups == 1 && cols > 128 && (!is_small || cols % 64 == 0);
    if (is_row && is_symmetric) return is_small ? Format::int4_row : Format::int8_row;
    if (found.scales->format == Format::f32) return is_small ? Format::int4_w32 : Format::int8_w32;
    if (group % 128 == 0) {
        if (is_symmetric) return is_small ? Format::int4_s128 : Format::int8_s128;
        if (!is_small) return Format::int8_z128;
        // A block of INT4_Z128 has two groups of 128 inputs. RowRange with an odd number of such groups use INT4_Z64, which
        // stores each of them as two groups of 64 inputs.
        return cols % 256 == 0 ? Format::int4_z128 : Format::int4_z64;
    }
    if (group % 64 == 0 && is_symmetric) return is_small ? Format::int4_s64 : Format::int8_s64;
    if (is_symmetric) return is_small ? Format::q4_0 : Format::q8_0;
    if (!is_small) return group % 64 == 0 ? Format::int8_z64 : Format::int8_z32;
    // INT4_Z64 has blocks of 128 inputs, INT4_Z32 blocks of 64 inputs.
    if (group % 64 == 0 && cols % 128 == 0) return Format::int4_z64;
    return cols % 64 == 0 ? Format::int4_z32 : Format::int4_w32;
}

// Assembles rows of integers.
struct IntegerReader {
    Integers of;
    Format format;
    bool is_symmetric;   // the format has no zero point: each must be the middle value
    float scale_up = 1;  // multiplies the scales before they are stored

    bool has_float_format() const { return format == Format::f32 || format == Format::f16; }

    std::vector<float> scales(const RowRange& rows) const {
        const Tensor& tensor = *of.scales;
        const FormatTraits& type = traits(*tensor.format);
        const checkpoint::View view = all_of(rows.checkpoint, tensor);
        const bool is_one = tensor.bytes == static_cast<uint64_t>(type.block_bytes);
        std::vector<float> scales(rows.count * of.n_groups);
        for (int64_t r = 0; r < rows.count; ++r) {
            for (int64_t g = 0; g < of.n_groups; ++g) {
                const int64_t at = is_one                  ? 0
                                   : of.has_inputs_outside ? g * of.rows + rows.first + r
                                                           : (rows.first + r) * of.n_groups + g;
                float& scale = scales[r * of.n_groups + g];
                type.decode_row(view.data + at * type.block_bytes, 1, &scale);
                scale *= scale_up;
            }
        }
        check_finite(rows, tensor, scales);
        if (format == Format::f32 || has_f32_scales(format)) return scales;
        for (const float scale : scales)
            // A weight that is stored as F16 is up to 8 times as large as its scale.
            if (!std::isfinite(f16_to_float(float_to_f16(format == Format::f16 ? 8 * scale : scale))))
                fail_file(Reason::value, "tensor {} has the scale {}, which is too large", tensor.name,
                          scale / scale_up);
        return scales;
    }

    std::vector<int16_t> zeros(const RowRange& rows) const {
        const int32_t middle = 1 << (of.bits - 1);
        std::vector<int16_t> zeros(rows.count * of.n_groups, static_cast<int16_t>(middle));
        if (of.zeros == nullptr) return zeros;
        const checkpoint::View view = all_of(rows.checkpoint, *of.zeros);
        for (int64_t r = 0; r < rows.count; ++r) {
            for (int64_t g = 0; g < of.n_groups; ++g) {
                const int32_t zero = of.zero_at(of, view.data, rows.first + r, g) + of.zero_bias;
                if (is_symmetric && zero != middle)
                    fail_file(Reason::value,
                              "tensor {} has a zero point of {} in row {}, config.json says that the weights "
                              "are symmetric",
                              of.zeros->name, zero, rows.first + r);
                zeros[r * of.n_groups + g] = static_cast<int16_t>(zero);
            }
        }
        return zeros;
    }

    // Returns the group of each input. Throws format if groups are out of order, unless the matrix is stored as floats.
    std::vector<int32_t> groups(const RowRange& rows) const {
        if (of.groups == nullptr) return {};
        const checkpoint::View view = all_of(rows.checkpoint, *of.groups);
        std::vector<int32_t> groups(of.cols);
        std::memcpy(groups.data(), view.data, groups.size() * sizeof(int32_t));
        for (int64_t k = 0; k < of.cols; ++k) {
            const int32_t group = groups[k];
            if (group < 0 || group >= of.n_groups)
                fail_file(Reason::value, "tensor {} puts input {} into group {} of {}", of.groups->name, k,
                          group, of.n_groups);
            if (!has_float_format() && group != k / of.group())
                fail_file(
                    Reason::value,
                    "tensor {} has inputs out of order (input {} in group {}), which config.json does not "
                    "declare",
                    of.groups->name, k, group);
        }
        return groups;
    }

    // Writes a row with inputs in any groups as floats.
    void write_floats(const IntegerRow& row, std::span<const int32_t> groups, std::byte* out) const {
        for (int64_t k = 0; k < of.cols; ++k) {
            const int32_t group = groups[k];
            const float value = row.scales[group] * static_cast<float>(row.codes[k] - row.zeros[group]);
            if (format == Format::f32) {
                std::memcpy(out + k * sizeof(value), &value, sizeof(value));
            } else {
                const uint16_t half = float_to_f16(value);
                std::memcpy(out + k * sizeof(half), &half, sizeof(half));
            }
        }
    }

    void operator()(const RowRange& rows) const {
        std::vector<uint8_t> codes(rows.count * of.cols);
        of.read_codes(of, rows, codes);
        const std::vector<float> row_scales = scales(rows);
        const std::vector<int16_t> row_zeros = zeros(rows);
        const std::vector<int32_t> input_groups = groups(rows);
        for (int64_t r = 0; r < rows.count; ++r) {
            const IntegerRow row = {std::span(codes).subspan(r * of.cols, of.cols),
                                    std::span(row_scales).subspan(r * of.n_groups, of.n_groups),
                                    std::span(row_zeros).subspan(r * of.n_groups, of.n_groups), of.group()};
            std::byte* out = rows.out + r * rows.row_bytes;
            if (has_float_format()) {
                write_floats(row, input_groups, out);
            } else {
                write_integer_row(format, row, out);
            }
        }
    }
};

}  // namespace

uint8_t Integers::code_at(const std::byte* data, int64_t word, int64_t i) const {
    uint32_t value;
    std::memcpy(&value, data + 4 * word, sizeof(value));
    return static_cast<uint8_t>(value >> (i * bits) & ((1U << bits) - 1));
}

int64_t groups_of_rows(const Tensors& tensors, const Tensor& scales) {
    check_float(scales);
    if (is_one_number(scales) || has_shape(scales, {tensors.rows})) return 1;
    if (scales.shape.size() != 2 || scales.shape[0] != tensors.rows)
        fail_file(Reason::shape, "tensor {} has shape {}; scales of {} rows are [{}, groups]", scales.name,
                  shape_text(scales.shape), tensors.rows, tensors.rows);
    return scales.shape[1];
}

const Tensor* find_groups(const Tensors& tensors, std::string_view suffix) {
    const Tensor* groups = tensors.optional(suffix);
    if (groups != nullptr) check_tensor(*groups, "I32", {tensors.cols});
    return groups;
}

Integers beside_qweight(const Tensors& tensors) {
    const int64_t rows = tensors.rows;
    const Tensor& scales = tensors.required(".scales");
    check_float(scales);
    if (scales.shape.size() != 2 || scales.shape[1] != rows)
        fail_file(Reason::shape, "tensor {} has shape {}; scales of {} outputs are [groups, {}]", scales.name,
                  shape_text(scales.shape), rows, rows);
    return {.codes = &tensors.codes,
            .rows = rows,
            .cols = tensors.cols,
            .bits = 4,
            .scales = &scales,
            .n_groups = scales.shape[0],
            .has_inputs_outside = true};
}

void add_qzeros(const Tensors& tensors, bool is_required, Integers& integers) {
    const int64_t rows = integers.rows;
    const int64_t cols = integers.cols;
    if (rows * integers.bits % 32 != 0 || cols * integers.bits % 32 != 0)
        fail(Status::unsupported, "tensor {}: {} inputs and {} outputs fill no whole words",
             tensors.codes.name, cols, rows);
    integers.zeros = is_required ? &tensors.required(".qzeros") : tensors.optional(".qzeros");
    if (integers.zeros != nullptr)
        check_tensor(*integers.zeros, "I32", {integers.n_groups, integers.words(rows)});
    integers.groups = find_groups(tensors, ".g_idx");
}

AssembledRows integer_rows(const Tensors& tensors, const Integers& integers) {
    if (integers.n_groups < 1 || integers.cols % integers.n_groups != 0)
        fail_file(Reason::shape, "tensor {} has {} groups for rows of {} inputs", integers.scales->name,
                  integers.n_groups, integers.cols);
    check_against_hints(tensors.hints, integers);
    if (integers.group() % k_mx_group != 0)
        fail(Status::unsupported, "tensor {} is in groups of {} inputs; groups are multiples of {}",
             tensors.codes.name, integers.group(), k_mx_group);
    const bool is_symmetric = integers.zeros == nullptr || tensors.hints.symmetric == true;
    // If groups are ordered by activation, a row is not a sequence of blocks: such a matrix is stored as floats. The product of a
    // scale of BF16 (8 bits) and a number from -8 to 7 is an F16 number.
    const bool is_ordered = integers.groups != nullptr && tensors.hints.orders_inputs;
    const bool has_bf16_scales = integers.scales->format == Format::bf16;
    const bool is_f16 = has_bf16_scales && integers.bits == 4 && is_symmetric;
    const Format of_ordered = is_f16 ? Format::f16 : Format::f32;
    const Format format = is_ordered ? of_ordered : integer_format(integers, is_symmetric);
    AssembledRows matrix = rows_of(tensors, format, Method::integers, integers.group());
    IntegerReader reader = {integers, format, is_symmetric};
    if (has_bf16_scales && format != Format::f32 && !has_f32_scales(format)) {
        reader.scale_up = k_bf16_scale_up;
        matrix.factor = [](const Checkpoint&) { return 1.0F / k_bf16_scale_up; };
    }
    matrix.read = reader;
    return matrix;
}

}  // namespace minim::layouts
