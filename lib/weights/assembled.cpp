#include "weights/assembled.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/printable.h"
#include "format/gather.h"

namespace minim::weights {
namespace {

using checkpoint::Checkpoint;
using checkpoint::shape_text;
using checkpoint::Tensor;
using Kind = AssembledMatrix::Kind;

// Rows that are read together; their codes and scales fit into the first-level cache or nearly so.
constexpr int64_t k_rows_together = 16;
constexpr int64_t k_scale_block = 128;  // of FP8, in both directions
constexpr int64_t k_awq_group = 128;
constexpr int64_t k_awq_rows = 8;  // of a word

int64_t blocks_of(int64_t count, int64_t block) {
    return (count + block - 1) / block;
}

bool has_shape(const Tensor& tensor, std::initializer_list<int64_t> wanted) {
    return std::ranges::equal(tensor.shape, wanted);
}

void check(const Tensor& tensor, std::string_view type, std::initializer_list<int64_t> wanted) {
    if (!has_shape(tensor, wanted)) {
        fail_file(Reason::shape, "tensor {} has shape {}, {} is asked for", tensor.name,
                  shape_text(tensor.shape), shape_text(wanted));
    }
    if (tensor.type_name != type)
        fail(Status::unsupported, "tensor {} is of type {}, not {}", tensor.name, tensor.type_name, type);
}

void check_float(const Tensor& tensor) {
    if (tensor.format != Format::f32 && tensor.format != Format::f16 && tensor.format != Format::bf16)
        fail(Status::unsupported, "tensor {} is of type {}; scales are F32, F16 or BF16", tensor.name,
             tensor.type_name);
}

// The tensors beside one weight, by what their names add to the stem.
struct Companions {
    const FindTensor& find;
    std::string stem;

    const Tensor* optional(std::string_view suffix) const { return find(stem + std::string(suffix)); }
    const Tensor& required(std::string_view suffix) const {
        const Tensor* tensor = optional(suffix);
        if (tensor == nullptr) fail_file(Reason::value, "tensor {}{} is missing", stem, suffix);
        return *tensor;
    }
    // For activations that are quantised by factors of the file: found, so that they are known to be of use to somebody.
    void skip_activation_scales() const {
        for (const char* suffix : {".input_scale", ".activation_scale", ".input_global_scale"})
            static_cast<void>(optional(suffix));
    }
};

int64_t checked_row_bytes(const Tensor& codes, Format format, int64_t cols) {
    uint64_t bytes = 0;
    if (!row_bytes(format, static_cast<uint64_t>(cols), bytes)) {
        fail(Status::unsupported, "tensor {}: rows of {} inputs are no multiple of {}", codes.name, cols,
             traits(format).block_elems);
    }
    return static_cast<int64_t>(bytes);
}

AssembledMatrix make(Kind kind, Format format, const Tensor& codes, const Tensor& scales, int64_t rows,
                     int64_t cols) {
    return {.kind = kind,
            .format = format,
            .rows = rows,
            .cols = cols,
            .row_bytes = checked_row_bytes(codes, format, cols),
            .codes = &codes,
            .scales = &scales};
}

// X.weight in E4M3 with a scale for every 128 x 128 numbers, every row, or all.
AssembledMatrix find_fp8(const Companions& beside, const Tensor& codes, int64_t rows, int64_t cols) {
    check(codes, "F8_E4M3", {rows, cols});
    beside.skip_activation_scales();
    const Tensor* inverse = beside.optional(".weight_scale_inv");
    const Tensor& scales = inverse != nullptr ? *inverse : beside.required(".weight_scale");
    check_float(scales);
    const int64_t row_blocks = blocks_of(rows, k_scale_block);
    const int64_t col_blocks = blocks_of(cols, k_scale_block);
    const auto of_kind = [&](Kind kind) {
        return make(kind, Format::fp8_e4m3_b128, codes, scales, rows, cols);
    };
    if (has_shape(scales, {row_blocks, col_blocks})) return of_kind(Kind::fp8_blocks);
    if (has_shape(scales, {rows}) || has_shape(scales, {rows, 1})) return of_kind(Kind::fp8_rows);
    if (has_shape(scales, {}) || has_shape(scales, {1})) return of_kind(Kind::fp8_whole);
    fail_file(Reason::shape, "tensor {} has shape {}; a scale for every {} x {} numbers is [{}, {}]",
              scales.name, shape_text(scales.shape), k_scale_block, k_scale_block, row_blocks, col_blocks);
}

// Two codes a byte with an E4M3 scale for every 16 and a factor for all.
AssembledMatrix find_nvfp4(const Companions& beside, const Tensor& codes, const Tensor& factor, bool divides,
                           int64_t rows, int64_t cols) {
    const Tensor& scales = beside.required(".weight_scale");
    check(codes, "U8", {rows, cols / 2});
    check(scales, "F8_E4M3", {rows, cols / 16});
    if (factor.format != Format::f32 || factor.bytes != sizeof(float))
        fail_file(Reason::shape, "tensor {} ({} {}) is not one F32 number", factor.name, factor.type_name,
                  shape_text(factor.shape));
    beside.skip_activation_scales();
    AssembledMatrix matrix = make(Kind::nvfp4, Format::nvfp4, codes, scales, rows, cols);
    matrix.factor = &factor;
    matrix.divides = divides;
    return matrix;
}

// X.weight_packed of compressed-tensors.
AssembledMatrix find_packed(const Companions& beside, const Tensor& codes, int64_t rows, int64_t cols) {
    if (const Tensor* factor = beside.optional(".weight_global_scale"))
        return find_nvfp4(beside, codes, *factor, true, rows, cols);
    const Tensor& scales = beside.required(".weight_scale");
    if (codes.type_name != "U8" || scales.type_name != "U8") {
        fail(Status::unsupported,
             "tensor {} ({}, scales of type {}) is packed in a way that is not supported", codes.name,
             codes.type_name, scales.type_name);
    }
    check(codes, "U8", {rows, cols / 2});
    check(scales, "U8", {rows, cols / 32});
    return make(Kind::mxfp4, Format::mxfp4, codes, scales, rows, cols);
}

AssembledMatrix find_awq(const Companions& beside, const Tensor& codes, int64_t rows, int64_t cols) {
    if (const Tensor* order = beside.optional(".g_idx"))
        fail(Status::unsupported, "tensor {}: weights of GPTQ are not supported", order->name);
    if (cols % k_awq_group != 0 || rows % k_awq_rows != 0) {
        fail(Status::unsupported, "tensor {}: {} inputs in groups of {} and {} outputs in words of {}",
             codes.name, cols, k_awq_group, rows, k_awq_rows);
    }
    const Tensor& zeros = beside.required(".qzeros");
    const Tensor& scales = beside.required(".scales");
    const int64_t n_words = rows / k_awq_rows;
    check(codes, "I32", {cols, n_words});
    check(zeros, "I32", {cols / k_awq_group, n_words});
    check(scales, "F16", {cols / k_awq_group, rows});
    AssembledMatrix matrix = make(Kind::awq, Format::int4_z128, codes, scales, rows, cols);
    matrix.zeros = &zeros;
    return matrix;
}

// Where the scales of a row begin among those of a matrix, in rows of scales.
int64_t fp8_scale_row(Kind kind, int64_t row) {
    switch (kind) {
        case Kind::fp8_blocks:
            return row / k_scale_block;
        case Kind::fp8_rows:
            return row;
        default:
            return 0;
    }
}

// Elements first … first + count of a tensor of floats.
std::vector<float> read_floats(const Checkpoint& checkpoint, const Tensor& tensor, int64_t first,
                               int64_t count) {
    const int64_t size = traits(*tensor.format).block_bytes;
    std::vector<std::byte> stored(static_cast<size_t>(count * size));
    checkpoint.read(tensor, static_cast<uint64_t>(first * size), stored);
    std::vector<float> values(static_cast<size_t>(count));
    traits(*tensor.format).decode_row(stored.data(), count, values.data());
    return values;
}

// One for every 128 columns.
std::vector<float> fp8_scales(const Checkpoint& checkpoint, const AssembledMatrix& matrix,
                              int64_t scale_row) {
    const int64_t n_blocks = blocks_of(matrix.cols, k_scale_block);
    if (matrix.kind == Kind::fp8_blocks)
        return read_floats(checkpoint, *matrix.scales, scale_row * n_blocks, n_blocks);
    const float scale = read_floats(checkpoint, *matrix.scales, scale_row, 1).front();
    return std::vector<float>(static_cast<size_t>(n_blocks), scale);
}

void read_fp8(const Checkpoint& checkpoint, const AssembledMatrix& matrix, int64_t first, int64_t count,
              std::byte* out) {
    const int64_t cols = matrix.cols;
    std::vector<std::byte> codes(static_cast<size_t>(count * cols));
    checkpoint.read(*matrix.codes, static_cast<uint64_t>(first * cols), codes);
    if (has_nan_e4m3(codes))
        fail_file(Reason::value, "tensor {} has NaN in rows {} to {}", matrix.codes->name, first,
                  first + count - 1);
    std::vector<float> scales;
    int64_t scales_row = -1;
    for (int64_t r = 0; r < count; ++r) {
        const int64_t row = fp8_scale_row(matrix.kind, first + r);
        if (std::exchange(scales_row, row) != row) scales = fp8_scales(checkpoint, matrix, row);
        gather_fp8_row(codes.data() + r * cols, scales.data(), cols, out + r * matrix.row_bytes);
    }
}

void read_fp4(const Checkpoint& checkpoint, const AssembledMatrix& matrix, int64_t first, int64_t count,
              std::byte* out) {
    const bool is_nvfp4 = matrix.kind == Kind::nvfp4;
    const int64_t code_bytes = matrix.cols / 2;
    const int64_t scale_bytes = matrix.cols / (is_nvfp4 ? 16 : 32);
    std::vector<std::byte> codes(static_cast<size_t>(count * code_bytes));
    std::vector<std::byte> scales(static_cast<size_t>(count * scale_bytes));
    checkpoint.read(*matrix.codes, static_cast<uint64_t>(first * code_bytes), codes);
    checkpoint.read(*matrix.scales, static_cast<uint64_t>(first * scale_bytes), scales);
    if (is_nvfp4 && has_nan_e4m3(scales))
        fail_file(Reason::value, "tensor {} has NaN in rows {} to {}", matrix.scales->name, first,
                  first + count - 1);
    const auto gather = is_nvfp4 ? gather_nvfp4_row : gather_mxfp4_row;
    for (int64_t r = 0; r < count; ++r)
        gather(codes.data() + r * code_bytes, scales.data() + r * scale_bytes, matrix.cols,
               out + r * matrix.row_bytes);
}

// `first` and `count` are multiples of k_awq_rows for AWQ.
void read_rows(const Checkpoint& checkpoint, const AssembledMatrix& matrix, int64_t first, int64_t count,
               std::byte* out) {
    if (matrix.kind == Kind::awq) {
        // Rows are columns of the file: the mapping is read, as each column would be a read of its own.
        const AwqMatrix awq = {checkpoint.data(*matrix.codes), checkpoint.data(*matrix.zeros),
                               checkpoint.data(*matrix.scales), matrix.rows, matrix.cols};
        return gather_awq_rows(awq, first, count, out);
    }
    for (int64_t r = first; r < first + count; r += k_rows_together) {
        const int64_t n = std::min(k_rows_together, first + count - r);
        std::byte* to = out + (r - first) * matrix.row_bytes;
        if (matrix.format == Format::fp8_e4m3_b128) {
            read_fp8(checkpoint, matrix, r, n, to);
        } else {
            read_fp4(checkpoint, matrix, r, n, to);
        }
    }
}

}  // namespace

std::optional<AssembledMatrix> find_assembled(const FindTensor& find, const std::string& name, int64_t rows,
                                              int64_t cols) {
    constexpr std::string_view k_suffix = ".weight";
    if (!name.ends_with(k_suffix)) return {};
    const Companions beside{find, name.substr(0, name.size() - k_suffix.size())};
    if (const Tensor* whole = beside.optional(k_suffix)) {
        if (whole->type_name == "F8_E4M3") return find_fp8(beside, *whole, rows, cols);
        if (whole->type_name == "U8")
            return find_nvfp4(beside, *whole, beside.required(".weight_scale_2"), false, rows, cols);
        return {};
    }
    if (const Tensor* packed = beside.optional(".weight_packed"))
        return find_packed(beside, *packed, rows, cols);
    if (const Tensor* codes = beside.optional(".qweight")) return find_awq(beside, *codes, rows, cols);
    return {};
}

void read_assembled(const Checkpoint& checkpoint, const AssembledMatrix& matrix, uint64_t at,
                    std::span<std::byte> out) {
    const int64_t step = matrix.kind == Kind::awq ? k_awq_rows : 1;
    const auto begin = static_cast<int64_t>(at);
    const int64_t end = begin + std::ssize(out);
    const int64_t first = begin / matrix.row_bytes / step * step;
    const int64_t last = blocks_of(blocks_of(end, matrix.row_bytes), step) * step;
    if (first * matrix.row_bytes == begin && last * matrix.row_bytes == end)
        return read_rows(checkpoint, matrix, first, last - first, out.data());
    std::vector<std::byte> rows(static_cast<size_t>((last - first) * matrix.row_bytes));
    read_rows(checkpoint, matrix, first, last - first, rows.data());
    std::copy_n(rows.begin() + (begin - first * matrix.row_bytes), out.size(), out.begin());
}

float read_factor(const Checkpoint& checkpoint, const AssembledMatrix& matrix) {
    if (matrix.factor == nullptr) return 1.0F;
    const float value = read_floats(checkpoint, *matrix.factor, 0, 1).front();
    if (!std::isfinite(value) || value < 0.0F || (matrix.divides && value == 0.0F))
        fail_file(Reason::value, "tensor {} is {}", matrix.factor->name, value);
    return matrix.divides ? 1.0F / value : value;
}

}  // namespace minim::weights
