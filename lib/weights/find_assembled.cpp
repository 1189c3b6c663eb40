// SPDX-License-Identifier: Apache-2.0
// One long file: the layouts share their checks, and the order in which they are tried decides between them.
#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/format_text.h"
#include "checkpoint/printable.h"
#include "format/integers.h"
#include "weights/assembled.h"

namespace minim::weights {
namespace {

using checkpoint::shape_text;
using checkpoint::Tensor;
using Kind = AssembledMatrix::Kind;
using Codes = AssembledMatrix::Codes;

constexpr int64_t k_scale_block = 128;  // rows and columns of a block with one FP8 scale
constexpr int64_t k_mx_group = 32;
constexpr int64_t k_nvfp4_group = 16;
// Scales of BF16 are stored as F16, multiplied by 256, so that none above 2^-22 loses a bit. The factor of the matrix
// divides by 256 again.
constexpr float k_bf16_scale_up = 256.0F;

int64_t blocks_of(int64_t count, int64_t block) {
    return (count + block - 1) / block;
}

bool has_shape(const Tensor& tensor, std::initializer_list<int64_t> wanted) {
    return std::ranges::equal(tensor.shape, wanted);
}

void check_shape(const Tensor& tensor, std::initializer_list<int64_t> wanted) {
    if (!has_shape(tensor, wanted))
        fail_file(Reason::shape, "tensor {} has shape {}, {} is asked for", tensor.name,
                  shape_text(tensor.shape), shape_text(wanted));
}

void check(const Tensor& tensor, std::string_view type, std::initializer_list<int64_t> wanted) {
    check_shape(tensor, wanted);
    if (tensor.type_name != type)
        fail(Status::unsupported, "tensor {} is of type {}, not {}", tensor.name, tensor.type_name, type);
}

void check_float(const Tensor& tensor) {
    if (tensor.format != Format::f32 && tensor.format != Format::f16 && tensor.format != Format::bf16)
        fail(Status::unsupported, "tensor {} is of type {}; scales are F32, F16 or BF16", tensor.name,
             tensor.type_name);
}

// Checks a tensor of scales that are powers of two, one byte each.
void check_exponents(const Tensor& tensor, std::initializer_list<int64_t> wanted) {
    check_shape(tensor, wanted);
    if (tensor.type_name != "U8" && tensor.type_name != "F8_E8M0")
        fail(Status::unsupported, "tensor {} is of type {}, not U8 or F8_E8M0", tensor.name,
             tensor.type_name);
}

bool is_one_number(const Tensor& tensor) {
    return has_shape(tensor, {}) || has_shape(tensor, {1}) || has_shape(tensor, {1, 1});
}

// Finds the tensors of one matrix.
struct Companions {
    const FindTensor& find;
    std::string stem;  // X of X.weight
    int64_t rows;
    int64_t cols;
    const PackingHints& hints;

    const Tensor* optional(std::string_view suffix) const { return find(stem + std::string(suffix)); }
    const Tensor& required(std::string_view suffix) const {
        const Tensor* tensor = optional(suffix);
        if (tensor == nullptr) fail_file(Reason::value, "tensor {}{} is missing", stem, suffix);
        return *tensor;
    }
    // Returns the tensor with the first of the suffixes that exists. Throws format if neither does.
    const Tensor& one_of(std::string_view first, std::string_view second) const {
        const Tensor* tensor = optional(first);
        return tensor != nullptr ? *tensor : required(second);
    }
    // Marks tensors that do not affect weights as known.
    void skip(std::initializer_list<std::string_view> suffixes) const {
        for (const std::string_view suffix : suffixes) static_cast<void>(optional(suffix));
    }
    void skip_activation_scales() const {
        skip({".input_scale", ".activation_scale", ".input_global_scale", ".input_zero_point"});
    }
};

int64_t checked_row_bytes(const Tensor& codes, Format format, int64_t cols) {
    uint64_t bytes = 0;
    if (!row_bytes(format, static_cast<uint64_t>(cols), bytes)) {
        fail(Status::unsupported, "tensor {}: rows of {} inputs are not a multiple of {}", codes.name, cols,
             traits(format).block_elems);
    }
    return static_cast<int64_t>(bytes);
}

AssembledMatrix make(Kind kind, Format format, const Tensor& codes, const Tensor* scales, int64_t rows,
                     int64_t cols) {
    return {.kind = kind,
            .format = format,
            .rows = rows,
            .cols = cols,
            .row_bytes = checked_row_bytes(codes, format, cols),
            .codes = &codes,
            .scales = scales};
}

// ---- numbers of eight and four bits with a floating point ----

// Finds X.weight in E4M3, with a power of two for every 32 inputs, or with a scale for every 128 x 128 numbers, for
// every row, or for the whole matrix.
AssembledMatrix find_fp8(const Companions& beside, const Tensor& codes) {
    const int64_t rows = beside.rows;
    const int64_t cols = beside.cols;
    check(codes, "F8_E4M3", {rows, cols});
    beside.skip_activation_scales();
    const Tensor& scales = beside.one_of(".weight_scale_inv", ".weight_scale");
    if (scales.type_name == "U8" || scales.type_name == "F8_E8M0") {
        check_exponents(scales, {rows, cols / k_mx_group});
        return make(Kind::mxfp8, Format::mxfp8, codes, &scales, rows, cols);
    }
    check_float(scales);
    AssembledMatrix matrix = make(Kind::fp8, Format::fp8_e4m3_b128, codes, &scales, rows, cols);
    const int64_t row_blocks = blocks_of(rows, k_scale_block);
    const int64_t col_blocks = blocks_of(cols, k_scale_block);
    if (is_one_number(scales)) {
        matrix.scale_rows = rows;
    } else if (has_shape(scales, {rows}) || has_shape(scales, {rows, 1})) {
        matrix.scale_rows = 1;
    } else if (has_shape(scales, {row_blocks, col_blocks})) {
        matrix.scale_rows = k_scale_block;
    } else {
        fail_file(Reason::shape, "tensor {} has shape {}; a scale for every {} x {} numbers is [{}, {}]",
                  scales.name, shape_text(scales.shape), k_scale_block, k_scale_block, row_blocks,
                  col_blocks);
    }
    return matrix;
}

// Finds codes of which two take a byte, with an E4M3 scale for every 16 codes and a factor for the whole matrix.
AssembledMatrix find_nvfp4(const Companions& beside, const Tensor& codes, const Tensor& factor,
                           bool divides) {
    const Tensor& scales = beside.required(".weight_scale");
    check(codes, "U8", {beside.rows, beside.cols / 2});
    check(scales, "F8_E4M3", {beside.rows, beside.cols / k_nvfp4_group});
    if (factor.format != Format::f32 || factor.bytes != sizeof(float))
        fail_file(Reason::shape, "tensor {} ({} {}) is not one F32 number", factor.name, factor.type_name,
                  shape_text(factor.shape));
    beside.skip_activation_scales();
    AssembledMatrix matrix = make(Kind::nvfp4, Format::nvfp4, codes, &scales, beside.rows, beside.cols);
    matrix.factor = &factor;
    matrix.divides = divides;
    return matrix;
}

AssembledMatrix find_mxfp4(const Companions& beside, const Tensor& codes) {
    const Tensor& scales = beside.required(".weight_scale");
    check(codes, "U8", {beside.rows, beside.cols / 2});
    check_exponents(scales, {beside.rows, beside.cols / k_mx_group});
    beside.skip_activation_scales();
    return make(Kind::mxfp4, Format::mxfp4, codes, &scales, beside.rows, beside.cols);
}

// ---- whole numbers ----

struct Integers {
    Codes packing;
    int32_t bits;
    const Tensor* scales;
    const Tensor* zeros;
    const Tensor* groups;
    int64_t n_groups;  // scales of a row
    int32_t zero_bias;
};

std::string declared_text(const PackingHints& hints) {
    return hints.text.empty() ? "config.json" : "config.json (" + hints.text + ")";
}

void check_against_hints(const Companions& beside, const Tensor& codes, const Integers& found,
                         int64_t group) {
    const auto& declared = beside.hints.groups;
    const int64_t whole_row = group == beside.cols ? -1 : group;
    const bool is_declared = std::ranges::any_of(declared, [&](const PackingHints::Group& one) {
        return one.bits == found.bits && (one.size == group || one.size == whole_row);
    });
    if (!declared.empty() && !is_declared)
        fail_file(Reason::value, "tensor {} holds {} bits in groups of {} inputs, which {} does not declare",
                  codes.name, found.bits, group, declared_text(beside.hints));
}

std::optional<Method> method_of(Kind kind) {
    switch (kind) {
        case Kind::fp8:
            return Method::fp8;
        case Kind::mxfp8:
            return Method::mxfp8;
        case Kind::nvfp4:
            return Method::nvfp4;
        case Kind::mxfp4:
            return Method::mxfp4;
        case Kind::awq:
        case Kind::integers:
            return Method::integers;
        case Kind::transposed:
            break;
    }
    return {};
}

int64_t group_of(const AssembledMatrix& matrix) {
    if (matrix.kind == Kind::nvfp4) return k_nvfp4_group;
    return matrix.kind == Kind::mxfp4 || matrix.kind == Kind::mxfp8 ? k_mx_group : matrix.group;
}

std::string found_text(const AssembledMatrix& matrix) {
    constexpr std::string_view k_names[] = {"FP8", "MXFP8", "NVFP4", "MXFP4", "whole numbers"};
    const std::string_view name = k_names[static_cast<size_t>(*method_of(matrix.kind))];
    if (matrix.kind == Kind::fp8) return std::string(name);
    return format_text("{} in groups of {}", name, group_of(matrix));
}

// Throws format if a file of the folder declares another quantisation of the matrix.
void check_against_declarations(const PackingHints& hints, const std::string& stem,
                                const AssembledMatrix& matrix) {
    const std::optional<Method> method = method_of(matrix.kind);
    if (!method) return;
    const int64_t group = group_of(matrix);
    const int64_t whole_row = group == matrix.cols ? -1 : group;
    const auto agrees = [&](const Declaration::Entry& entry) {
        const bool has_group =
            entry.group == 0 || *method == Method::fp8 || entry.group == group || entry.group == whole_row;
        return entry.method == *method && has_group;
    };
    for (const Declaration& declaration : hints.declarations) {
        const auto own = declaration.modules.find(stem);
        if (own != declaration.modules.end() && !agrees(own->second))
            fail_file(Reason::value, "tensor {} holds {}, {} says {} of it", matrix.codes->name,
                      found_text(matrix), declaration.file, own->second.text);
        if (own != declaration.modules.end() || declaration.entries.empty() ||
            std::ranges::any_of(declaration.entries, agrees))
            continue;
        fail_file(Reason::value, "tensor {} holds {}, {} declares {}", matrix.codes->name, found_text(matrix),
                  declaration.file, declaration.entries.front().text);
    }
}

// Returns the smallest format that represents these numbers.
Format integer_format(const Integers& found, int64_t group, int64_t cols, bool is_symmetric) {
    const bool is_small = found.bits == 4;
    // For shorter rows, an F16 scale in each block is smaller.
    const bool is_row = found.n_groups == 1 && cols > k_scale_block && (!is_small || cols % 64 == 0);
    if (is_row && is_symmetric) return is_small ? Format::int4_row : Format::int8_row;
    if (found.scales->format == Format::f32) return is_small ? Format::int4_w32 : Format::int8_w32;
    if (group % 128 == 0) {
        if (is_symmetric) return is_small ? Format::int4_s128 : Format::int8_s128;
        if (!is_small) return Format::int8_z128;
        // A block of INT4_Z128 has two groups of 128 inputs. Rows with an odd number of such groups use INT4_Z64, which
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

AssembledMatrix make_integers(const Companions& beside, const Tensor& codes, const Integers& found) {
    if (found.n_groups < 1 || beside.cols % found.n_groups != 0)
        fail_file(Reason::shape, "tensor {} has {} groups for rows of {} inputs", found.scales->name,
                  found.n_groups, beside.cols);
    const int64_t group = beside.cols / found.n_groups;
    check_against_hints(beside, codes, found, group);
    if (group % k_mx_group != 0)
        fail(Status::unsupported, "tensor {} is in groups of {} inputs; groups are multiples of {}",
             codes.name, group, k_mx_group);
    const bool is_symmetric = found.zeros == nullptr || beside.hints.symmetric == true;
    // If groups are ordered by activation, a row is not a sequence of blocks: such a matrix is stored as floats. The product of a
    // scale of BF16 (8 bits) and a number from -8 to 7 is an F16 number.
    const bool is_ordered = found.groups != nullptr && beside.hints.orders_inputs;
    const bool has_bf16_scales = found.scales->format == Format::bf16;
    const bool is_f16 = has_bf16_scales && found.bits == 4 && is_symmetric;
    const Format of_ordered = is_f16 ? Format::f16 : Format::f32;
    const Format format = is_ordered ? of_ordered : integer_format(found, group, beside.cols, is_symmetric);
    AssembledMatrix matrix = make(Kind::integers, format, codes, found.scales, beside.rows, beside.cols);
    matrix.zeros = found.zeros;
    matrix.groups = found.groups;
    matrix.packing = found.packing;
    matrix.bits = found.bits;
    matrix.group = group;
    matrix.zero_bias = found.zero_bias;
    matrix.is_symmetric = is_symmetric;
    if (has_bf16_scales && format != Format::f32 && !has_f32_scales(format))
        matrix.multiplier = 1.0F / k_bf16_scale_up;
    return matrix;
}

void check_groups(const Tensor* groups, int64_t cols) {
    if (groups != nullptr) check(*groups, "I32", {cols});
}

// Returns the groups of a row, given scales of shape [rows, groups] or [rows], or one scale for the whole matrix.
int64_t groups_of_rows(const Companions& beside, const Tensor& scales) {
    check_float(scales);
    if (is_one_number(scales) || has_shape(scales, {beside.rows})) return 1;
    if (scales.shape.size() != 2 || scales.shape[0] != beside.rows)
        fail_file(Reason::shape, "tensor {} has shape {}; scales of {} rows are [{}, groups]", scales.name,
                  shape_text(scales.shape), beside.rows, beside.rows);
    return scales.shape[1];
}

// Finds X.weight_packed of compressed-tensors, in words of 32 bits along a row.
AssembledMatrix find_packed_words(const Companions& beside, const Tensor& codes) {
    const auto bits = static_cast<int32_t>(
        codes.shape.size() == 2 && beside.cols > 0 ? codes.shape[1] * 32 / beside.cols : 0);
    if (bits != 4 && bits != 8)
        fail(Status::unsupported,
             "tensor {} has shape {}: {} inputs of 4 or 8 bits make rows of {} or {} words", codes.name,
             shape_text(codes.shape), beside.cols, beside.cols / 8, beside.cols / 4);
    check(codes, "I32", {beside.rows, beside.cols * bits / 32});
    beside.skip_activation_scales();
    const Tensor* shape = beside.optional(".weight_shape");
    if (shape != nullptr) check_shape(*shape, {2});
    if (shape != nullptr && shape->format != Format::i32 && shape->format != Format::i64)
        fail(Status::unsupported, "tensor {} is of type {}, not I32 or I64", shape->name, shape->type_name);
    const Tensor& scales = beside.required(".weight_scale");
    const int64_t n_groups = groups_of_rows(beside, scales);
    const Tensor* zeros = beside.optional(".weight_zero_point");
    if (zeros != nullptr) check(*zeros, "I32", {blocks_of(beside.rows * bits, 32), n_groups});
    const Tensor* groups = beside.optional(".weight_g_idx");
    check_groups(groups, beside.cols);
    AssembledMatrix matrix =
        make_integers(beside, codes, {Codes::words_of_rows, bits, &scales, zeros, groups, n_groups, 0});
    matrix.shape = shape;
    return matrix;
}

// Finds X.weight in bytes.
AssembledMatrix find_int8(const Companions& beside, const Tensor& codes) {
    check(codes, "I8", {beside.rows, beside.cols});
    beside.skip_activation_scales();
    const Tensor& scales = beside.required(".weight_scale");
    const int64_t n_groups = groups_of_rows(beside, scales);
    const Tensor* zeros = beside.optional(".weight_zero_point");
    if (zeros != nullptr) {
        const bool is_per_row =
            has_shape(*zeros, {beside.rows}) || has_shape(*zeros, {beside.rows, n_groups});
        if (!is_one_number(*zeros) && !is_per_row) check_shape(*zeros, {beside.rows, n_groups});
        if (zeros->type_name != "I8")
            fail(Status::unsupported, "tensor {} is of type {}, not I8", zeros->name, zeros->type_name);
    }
    return make_integers(beside, codes, {Codes::bytes, 8, &scales, zeros, nullptr, n_groups, 0});
}

// Finds X.qweight. A word of AutoAWQ has eight outputs, a word of GPTQ as many inputs as fit.
AssembledMatrix find_qweight(const Companions& beside, const Tensor& codes) {
    const int64_t rows = beside.rows;
    const int64_t cols = beside.cols;
    const Tensor& scales = beside.required(".scales");
    check_float(scales);
    if (scales.shape.size() != 2 || scales.shape[1] != rows)
        fail_file(Reason::shape, "tensor {} has shape {}; scales of {} outputs are [groups, {}]", scales.name,
                  shape_text(scales.shape), rows, rows);
    const int64_t n_groups = scales.shape[0];
    const bool is_awq = has_shape(codes, {cols, blocks_of(rows, 8)});
    const auto bits = static_cast<int32_t>(is_awq                                ? 4
                                           : codes.shape.size() == 2 && cols > 0 ? codes.shape[0] * 32 / cols
                                                                                 : 0);
    if (bits != 4 && bits != 8)
        fail_file(Reason::shape,
                  "tensor {} has shape {}; of {} inputs and {} outputs AWQ makes [{}, {}], GPTQ [{}, {}]",
                  codes.name, shape_text(codes.shape), cols, rows, cols, rows / 8, cols / 8, rows);
    if (!is_awq) check(codes, "I32", {cols * bits / 32, rows});
    if (codes.type_name != "I32") check(codes, "I32", {cols, rows / 8});
    if ((is_awq && rows % 8 != 0) || rows * bits % 32 != 0 || cols * bits % 32 != 0)
        fail(Status::unsupported, "tensor {}: {} inputs and {} outputs fill no whole words", codes.name, cols,
             rows);
    const Tensor* zeros = is_awq ? &beside.required(".qzeros") : beside.optional(".qzeros");
    if (zeros != nullptr) check(*zeros, "I32", {n_groups, rows * bits / 32});
    const Tensor* groups = beside.optional(".g_idx");
    check_groups(groups, cols);
    AssembledMatrix matrix =
        make_integers(beside, codes,
                      {is_awq ? Codes::awq_words : Codes::words_of_columns, bits, &scales, zeros, groups,
                       n_groups, is_awq ? 0 : beside.hints.gptq_zero_bias});
    if (is_awq && matrix.group == k_scale_block && scales.format == Format::f16 && groups == nullptr &&
        matrix.format == Format::int4_z128)
        matrix.kind = Kind::awq;  // gives the same rows, but is read faster
    return matrix;
}

// Refuses a matrix that exists in two forms: it is not known which one is valid.
void refuse_two(const Companions& beside) {
    constexpr std::string_view k_codes[] = {".weight", ".weight_packed", ".qweight"};
    const Tensor* first = nullptr;
    for (const std::string_view suffix : k_codes) {
        const Tensor* tensor = beside.optional(suffix);
        if (tensor == nullptr) continue;
        if (first != nullptr)
            fail_file(Reason::value, "tensors {} and {} both hold one matrix", first->name, tensor->name);
        first = tensor;
    }
}

std::optional<AssembledMatrix> find_whole(const Companions& beside, const Tensor& whole) {
    if (whole.type_name == "F8_E4M3") return find_fp8(beside, whole);
    if (whole.type_name == "I8") return find_int8(beside, whole);
    if (whole.type_name != "U8") return {};
    if (const Tensor* factor = beside.optional(".weight_scale_2"))
        return find_nvfp4(beside, whole, *factor, false);
    const Tensor* scales = beside.optional(".weight_scale");
    if (scales != nullptr && scales->type_name == "F8_E4M3") beside.required(".weight_scale_2");
    return find_mxfp4(beside, whole);
}

// Returns the matrix, in any of its possible forms.
std::optional<AssembledMatrix> find_any(const Companions& beside) {
    if (const Tensor* whole = beside.optional(".weight")) return find_whole(beside, *whole);
    if (const Tensor* packed = beside.optional(".weight_packed")) {
        if (packed->type_name == "I32") return find_packed_words(beside, *packed);
        if (const Tensor* factor = beside.optional(".weight_global_scale"))
            return find_nvfp4(beside, *packed, *factor, true);
        if (packed->type_name != "U8")
            fail(Status::unsupported, "tensor {} is of type {}: packed in a way that is not supported",
                 packed->name, packed->type_name);
        return find_mxfp4(beside, *packed);
    }
    if (const Tensor* codes = beside.optional(".qweight")) return find_qweight(beside, *codes);
    return {};
}

}  // namespace

std::optional<AssembledMatrix> find_assembled(const FindTensor& find, const std::string& name, int64_t rows,
                                              int64_t cols, const PackingHints& hints) {
    constexpr std::string_view k_suffix = ".weight";
    if (!name.ends_with(k_suffix)) return {};
    const Companions beside{find, name.substr(0, name.size() - k_suffix.size()), rows, cols, hints};
    refuse_two(beside);
    auto matrix = find_any(beside);
    if (matrix) check_against_declarations(hints, beside.stem, *matrix);
    return matrix;
}

std::optional<AssembledMatrix> find_stacked(const FindTensor& find, const std::string& name, int64_t rows,
                                            int64_t cols, const StackPart& part, bool transposed,
                                            const PackingHints& hints) {
    const Tensor* codes = find(name);
    if (codes == nullptr) return {};
    const int64_t first_row = part.index * part.stack_rows + part.first_row;
    if (transposed) {
        check_shape(*codes, {part.n, cols, part.stack_rows});
        check_float(*codes);
        AssembledMatrix matrix = make(Kind::transposed, *codes->format, *codes, nullptr, rows, cols);
        matrix.first_row = first_row;
        matrix.stack_rows = part.stack_rows;
        return matrix;
    }
    if (codes->type_name != "F8_E4M3") return {};
    check_shape(*codes, {part.n, part.stack_rows, cols});
    const Tensor* inverse = find(name + "_scale_inv");
    const Tensor* scales = inverse != nullptr ? inverse : find(name + "_scale");
    if (scales == nullptr) fail_file(Reason::value, "tensor {}_scale_inv is missing", name);
    check_float(*scales);
    check_shape(*scales, {part.n, blocks_of(part.stack_rows, k_scale_block), blocks_of(cols, k_scale_block)});
    if (part.stack_rows % k_scale_block != 0 || part.first_row % k_scale_block != 0)
        fail(Status::unsupported, "tensor {}: {} rows an expert are not a multiple of {}", name,
             part.stack_rows, k_scale_block);
    AssembledMatrix matrix = make(Kind::fp8, Format::fp8_e4m3_b128, *codes, scales, rows, cols);
    matrix.scale_rows = k_scale_block;
    matrix.first_row = first_row;
    check_against_declarations(hints, name, matrix);
    return matrix;
}

}  // namespace minim::weights
