// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/half.h"
#include "format/gather.h"
#include "format/integers.h"
#include "weights/assembled.h"

namespace minim::weights {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Tensor;
using Kind = AssembledMatrix::Kind;
using Codes = AssembledMatrix::Codes;

// Rows that are read together; their codes and scales nearly fit the first-level cache. For transposed tensors: as
// many as fill a cache line.
constexpr int64_t k_rows_together = 16;
constexpr int64_t k_awq_rows = 8;       // rows in a word
constexpr int64_t k_scale_block = 128;  // rows and columns of a block with one FP8 scale

int64_t blocks_of(int64_t count, int64_t block) {
    return (count + block - 1) / block;
}

// Returns elements [first, first + count) of a tensor of floats.
std::vector<float> read_floats(const Checkpoint& checkpoint, const Tensor& tensor, int64_t first,
                               int64_t count) {
    const int64_t size = traits(*tensor.format).block_bytes;
    std::vector<std::byte> stored(count * size);
    checkpoint.read(tensor, static_cast<uint64_t>(first * size), stored);
    std::vector<float> values(count);
    traits(*tensor.format).decode_row(stored.data(), count, values.data());
    return values;
}

std::vector<std::byte> read_bytes(const Checkpoint& checkpoint, const Tensor& tensor, int64_t first,
                                  int64_t count) {
    std::vector<std::byte> bytes(count);
    checkpoint.read(tensor, static_cast<uint64_t>(first), bytes);
    return bytes;
}

checkpoint::View all_of(const Checkpoint& checkpoint, const Tensor& tensor) {
    return checkpoint.view(tensor, 0, tensor.bytes);
}

[[noreturn]] void fail_value(const Tensor& tensor, std::string_view what, int64_t first, int64_t count) {
    fail_file(Reason::value, "tensor {} has {} in rows {} to {}", tensor.name, what, first,
              first + count - 1);
}

void check_finite(const Tensor& tensor, std::span<const float> values, int64_t first, int64_t count) {
    for (const float value : values)
        if (!std::isfinite(value)) fail_value(tensor, std::isnan(value) ? "NaN" : "infinity", first, count);
}

// ---- FP8 and FP4 ----

// Returns one scale for every 128 columns, from a row of scales.
std::vector<float> fp8_scales(const Checkpoint& checkpoint, const AssembledMatrix& matrix,
                              int64_t scale_row) {
    const int64_t n_blocks = blocks_of(matrix.cols, k_scale_block);
    if (matrix.scale_rows == k_scale_block)
        return read_floats(checkpoint, *matrix.scales, scale_row * n_blocks, n_blocks);
    const float scale = read_floats(checkpoint, *matrix.scales, scale_row, 1).front();
    return std::vector<float>(n_blocks, scale);
}

void read_fp8(const Checkpoint& checkpoint, const AssembledMatrix& matrix, int64_t first, int64_t count,
              std::byte* out) {
    const int64_t cols = matrix.cols;
    first += matrix.first_row;
    const std::vector<std::byte> codes = read_bytes(checkpoint, *matrix.codes, first * cols, count * cols);
    if (has_nan_e4m3(codes)) fail_value(*matrix.codes, "NaN", first, count);
    std::vector<float> scales;
    int64_t scales_row = -1;
    for (int64_t r = 0; r < count; ++r) {
        const int64_t row = (first + r) / matrix.scale_rows;
        if (std::exchange(scales_row, row) != row) {
            scales = fp8_scales(checkpoint, matrix, row);
            check_finite(*matrix.scales, scales, row, 1);
        }
        gather_fp8_row(codes.data() + r * cols, scales.data(), cols, out + r * matrix.row_bytes);
    }
}

// 255 is NaN in the standard of these scales.
void check_exponents(const Tensor& tensor, std::span<const std::byte> scales, int64_t first, int64_t count) {
    if (std::ranges::find(scales, std::byte{0xFF}) != scales.end()) fail_value(tensor, "NaN", first, count);
}

void read_mxfp8(const Checkpoint& checkpoint, const AssembledMatrix& matrix, int64_t first, int64_t count,
                std::byte* out) {
    const int64_t cols = matrix.cols;
    const int64_t n_scales = cols / 32;
    const std::vector<std::byte> codes = read_bytes(checkpoint, *matrix.codes, first * cols, count * cols);
    const std::vector<std::byte> scales =
        read_bytes(checkpoint, *matrix.scales, first * n_scales, count * n_scales);
    if (has_nan_e4m3(codes)) fail_value(*matrix.codes, "NaN", first, count);
    check_exponents(*matrix.scales, scales, first, count);
    for (int64_t r = 0; r < count; ++r)
        gather_mxfp8_row(codes.data() + r * cols, scales.data() + r * n_scales, cols,
                         out + r * matrix.row_bytes);
}

void read_fp4(const Checkpoint& checkpoint, const AssembledMatrix& matrix, int64_t first, int64_t count,
              std::byte* out) {
    const bool is_nvfp4 = matrix.kind == Kind::nvfp4;
    const int64_t code_bytes = matrix.cols / 2;
    const int64_t scale_bytes = matrix.cols / (is_nvfp4 ? 16 : 32);
    const std::vector<std::byte> codes =
        read_bytes(checkpoint, *matrix.codes, first * code_bytes, count * code_bytes);
    const std::vector<std::byte> scales =
        read_bytes(checkpoint, *matrix.scales, first * scale_bytes, count * scale_bytes);
    if (is_nvfp4 && has_nan_e4m3(scales)) fail_value(*matrix.scales, "NaN", first, count);
    if (!is_nvfp4) check_exponents(*matrix.scales, scales, first, count);
    const auto gather = is_nvfp4 ? gather_nvfp4_row : gather_mxfp4_row;
    for (int64_t r = 0; r < count; ++r)
        gather(codes.data() + r * code_bytes, scales.data() + r * scale_bytes, matrix.cols,
               out + r * matrix.row_bytes);
}

// ---- whole numbers ----

uint32_t word_at(const std::byte* words, int64_t index) {
    uint32_t word;
    std::memcpy(&word, words + 4 * index, sizeof(word));
    return word;
}

// A word of AutoAWQ has the codes of eight outputs. The four bits of output j begin at bit 4 * k_awq_order[j].
constexpr int k_awq_order[8] = {0, 4, 1, 5, 2, 6, 3, 7};

// Assembles rows of a matrix of integers: codes, scales and zero points, one row after the other.
class IntegerRows {
  public:
    IntegerRows(const Checkpoint& checkpoint, const AssembledMatrix& matrix, int64_t first, int64_t count)
        : checkpoint_(checkpoint),
          matrix_(matrix),
          first_(first),
          count_(count),
          n_groups_(matrix.cols / matrix.group),
          codes_(count * matrix.cols),
          scales_(count * n_groups_),
          zeros_(scales_.size()) {
        read_codes();
        read_scales();
        read_zeros();
        if (matrix.groups != nullptr) read_groups();
    }

    void write(int64_t r, std::byte* out) const {
        const auto row = static_cast<size_t>(r);
        const auto n_groups = static_cast<size_t>(n_groups_);
        const auto cols = static_cast<size_t>(matrix_.cols);
        const std::span codes = std::span(codes_).subspan(row * cols, cols);
        const std::span scales = std::span(scales_).subspan(row * n_groups, n_groups);
        const std::span zeros = std::span(zeros_).subspan(row * n_groups, n_groups);
        if (matrix_.format != Format::f32 && matrix_.format != Format::f16)
            return write_integer_row(matrix_.format, {codes, scales, zeros, matrix_.group}, out);
        for (size_t k = 0; k < cols; ++k) {
            const auto group = static_cast<size_t>(groups_[k]);
            const float value = scales[group] * static_cast<float>(codes[k] - zeros[group]);
            if (matrix_.format == Format::f32) {
                std::memcpy(out + k * sizeof(value), &value, sizeof(value));
            } else {
                const uint16_t half = float_to_f16(value);
                std::memcpy(out + k * sizeof(half), &half, sizeof(half));
            }
        }
    }

  private:
    void read_codes() {
        const int64_t cols = matrix_.cols;
        const int32_t bits = matrix_.bits;
        if (matrix_.packing == Codes::words_of_rows || matrix_.packing == Codes::bytes) {
            const int64_t row_bytes = cols * bits / 8;
            const std::vector<std::byte> bytes =
                read_bytes(checkpoint_, *matrix_.codes, first_ * row_bytes, count_ * row_bytes);
            const uint8_t flip = matrix_.packing == Codes::bytes ? 0x80 : 0;  // signed bytes, + 128
            for (size_t i = 0; i < bytes.size(); ++i) {
                const auto byte = std::to_integer<uint8_t>(bytes[i]);
                if (bits == 8) {
                    codes_[i] = byte ^ flip;
                } else {
                    codes_[2 * i] = byte & 15;
                    codes_[2 * i + 1] = byte >> 4;
                }
            }
            return;
        }
        // The tensor is transposed. It is read whole, or through the mapping, because each row would take thousands of read
        // calls.
        const checkpoint::View view = all_of(checkpoint_, *matrix_.codes);
        const std::byte* words = view.data;
        const int64_t a_word = 32 / bits;
        for (int64_t k = 0; k < cols; ++k) {
            for (int64_t r = 0; r < count_; ++r) {
                const int64_t n = first_ + r;
                const bool is_awq = matrix_.packing == Codes::awq_words;
                const uint32_t word = is_awq ? word_at(words, k * (matrix_.rows / 8) + n / 8)
                                             : word_at(words, k / a_word * matrix_.rows + n);
                const int64_t shift = is_awq ? 4 * k_awq_order[n % 8] : k % a_word * bits;
                codes_[r * cols + k] = static_cast<uint8_t>(word >> shift & ((1U << bits) - 1));
            }
        }
    }

    bool has_inputs_outside() const {
        return matrix_.packing == Codes::awq_words || matrix_.packing == Codes::words_of_columns;
    }

    void read_scales() {
        const Tensor& tensor = *matrix_.scales;
        const checkpoint::View view = all_of(checkpoint_, tensor);
        // Scales of BF16 are multiplied before they are stored as F16; the factor of the matrix divides again.
        const float up = 1.0F / matrix_.multiplier;
        const bool is_one = tensor.bytes == static_cast<uint64_t>(traits(*tensor.format).block_bytes);
        for (int64_t r = 0; r < count_; ++r) {
            for (int64_t g = 0; g < n_groups_; ++g) {
                const int64_t at = is_one                 ? 0
                                   : has_inputs_outside() ? g * matrix_.rows + first_ + r
                                                          : (first_ + r) * n_groups_ + g;
                float& scale = scales_[r * n_groups_ + g];
                traits(*tensor.format)
                    .decode_row(view.data + at * traits(*tensor.format).block_bytes, 1, &scale);
                scale *= up;
            }
        }
        check_finite(tensor, scales_, first_, count_);
        if (matrix_.format == Format::f32 || has_f32_scales(matrix_.format)) return;
        for (const float scale : scales_)
            // A weight that is stored as F16 is up to 8 times as large as its scale.
            if (!std::isfinite(f16_to_float(float_to_f16(matrix_.format == Format::f16 ? 8 * scale : scale))))
                fail_file(Reason::value, "tensor {} has the scale {}, which is too large", tensor.name,
                          scale / up);
    }

    int32_t zero_at(const std::byte* data, int64_t n, int64_t g) const {
        const int32_t bits = matrix_.bits;
        const int64_t a_word = 32 / bits;
        const uint32_t mask = (1U << bits) - 1;
        switch (matrix_.packing) {
            case Codes::bytes: {
                const bool is_per_row =
                    matrix_.zeros->bytes == static_cast<uint64_t>(matrix_.rows * n_groups_);
                return std::to_integer<int32_t>(data[is_per_row ? n * n_groups_ + g : 0] ^ std::byte{0x80});
            }
            case Codes::words_of_rows:  // packed along the outputs
                return static_cast<int32_t>(word_at(data, n / a_word * n_groups_ + g) >> (n % a_word * bits) &
                                            mask);
            case Codes::awq_words:
                return static_cast<int32_t>(
                    word_at(data, g * (matrix_.rows / 8) + n / 8) >> (4 * k_awq_order[n % 8]) & mask);
            case Codes::words_of_columns:
                return static_cast<int32_t>(
                    word_at(data, g * (matrix_.rows / a_word) + n / a_word) >> (n % a_word * bits) & mask);
        }
        return 0;
    }

    void read_zeros() {
        const int32_t middle = 1 << (matrix_.bits - 1);
        std::ranges::fill(zeros_, static_cast<int16_t>(middle));
        if (matrix_.zeros == nullptr) return;
        const checkpoint::View view = all_of(checkpoint_, *matrix_.zeros);
        for (int64_t r = 0; r < count_; ++r) {
            for (int64_t g = 0; g < n_groups_; ++g) {
                const int32_t zero = zero_at(view.data, first_ + r, g) + matrix_.zero_bias;
                if (matrix_.is_symmetric && zero != middle)
                    fail_file(Reason::value,
                              "tensor {} has a zero point of {} in row {}, config.json says that the weights "
                              "are symmetric",
                              matrix_.zeros->name, zero, first_ + r);
                zeros_[r * n_groups_ + g] = static_cast<int16_t>(zero);
            }
        }
    }

    // Reads the group of each input. Throws format if groups are out of order, unless the matrix is stored as floats.
    void read_groups() {
        const checkpoint::View view = all_of(checkpoint_, *matrix_.groups);
        groups_.resize(matrix_.cols);
        for (int64_t k = 0; k < matrix_.cols; ++k) {
            const auto group = static_cast<int32_t>(word_at(view.data, k));
            if (group < 0 || group >= n_groups_)
                fail_file(Reason::value, "tensor {} puts input {} into group {} of {}", matrix_.groups->name,
                          k, group, n_groups_);
            if (matrix_.format != Format::f32 && matrix_.format != Format::f16 && group != k / matrix_.group)
                fail_file(
                    Reason::value,
                    "tensor {} has inputs out of order (input {} in group {}), which config.json does not "
                    "declare",
                    matrix_.groups->name, k, group);
            groups_[k] = group;
        }
    }

    const Checkpoint& checkpoint_;
    const AssembledMatrix& matrix_;
    const int64_t first_, count_;
    const int64_t n_groups_;
    std::vector<uint8_t> codes_;
    std::vector<float> scales_;
    std::vector<int16_t> zeros_;
    std::vector<int32_t> groups_;
};

void read_integers(const Checkpoint& checkpoint, const AssembledMatrix& matrix, int64_t first, int64_t count,
                   std::byte* out) {
    const IntegerRows rows(checkpoint, matrix, first, count);
    for (int64_t r = 0; r < count; ++r) rows.write(r, out + r * matrix.row_bytes);
}

// Reads columns of a tensor [experts, inputs, outputs].
void read_transposed(const Checkpoint& checkpoint, const AssembledMatrix& matrix, int64_t first,
                     int64_t count, std::byte* out) {
    const int64_t size = traits(matrix.format).block_bytes;
    const int64_t expert = matrix.first_row / matrix.stack_rows;
    const int64_t column = matrix.first_row % matrix.stack_rows + first;
    const int64_t expert_bytes = matrix.cols * matrix.stack_rows * size;
    const checkpoint::View view = checkpoint.view(*matrix.codes, static_cast<uint64_t>(expert * expert_bytes),
                                                  static_cast<uint64_t>(expert_bytes));
    for (int64_t k = 0; k < matrix.cols; ++k)
        for (int64_t r = 0; r < count; ++r)
            std::memcpy(out + r * matrix.row_bytes + k * size,
                        view.data + (k * matrix.stack_rows + column + r) * size, size);
}

void check_stated_shape(const Checkpoint& checkpoint, const AssembledMatrix& matrix) {
    const auto size = static_cast<int64_t>(matrix.shape->bytes / 2);
    const std::vector<std::byte> stored = read_bytes(checkpoint, *matrix.shape, 0, 2 * size);
    int64_t stated[2] = {};
    for (int64_t i = 0; i < 2; ++i) {
        if (size == sizeof(int64_t)) {
            std::memcpy(&stated[i], stored.data() + i * size, sizeof(int64_t));
        } else {
            int32_t number;
            std::memcpy(&number, stored.data() + i * size, sizeof(number));
            stated[i] = number;
        }
    }
    if (stated[0] != matrix.rows || stated[1] != matrix.cols)
        fail_file(Reason::value, "tensor {} says [{}, {}], tensor {} is [{}, {}]", matrix.shape->name,
                  stated[0], stated[1], matrix.codes->name, matrix.rows, matrix.cols);
}

// `first` and `count` are multiples of k_awq_rows for AWQ.
void read_rows(const Checkpoint& checkpoint, const AssembledMatrix& matrix, int64_t first, int64_t count,
               std::byte* out) {
    if (matrix.kind == Kind::awq) {
        const checkpoint::View codes = all_of(checkpoint, *matrix.codes);
        const checkpoint::View zeros = all_of(checkpoint, *matrix.zeros);
        const checkpoint::View scales = all_of(checkpoint, *matrix.scales);
        const AwqMatrix awq = {codes.data, zeros.data, scales.data, matrix.rows, matrix.cols};
        return gather_awq_rows(awq, first, count, out);
    }
    for (int64_t r = first; r < first + count; r += k_rows_together) {
        const int64_t n = std::min(k_rows_together, first + count - r);
        std::byte* to = out + (r - first) * matrix.row_bytes;
        switch (matrix.kind) {
            case Kind::fp8:
                read_fp8(checkpoint, matrix, r, n, to);
                break;
            case Kind::mxfp8:
                read_mxfp8(checkpoint, matrix, r, n, to);
                break;
            case Kind::nvfp4:
            case Kind::mxfp4:
                read_fp4(checkpoint, matrix, r, n, to);
                break;
            case Kind::integers:
                read_integers(checkpoint, matrix, r, n, to);
                break;
            case Kind::transposed:
                read_transposed(checkpoint, matrix, r, n, to);
                break;
            case Kind::awq:
                break;
        }
    }
}

}  // namespace

int64_t rows_together(const AssembledMatrix& matrix) noexcept {
    return matrix.kind == Kind::awq ? k_awq_rows : k_rows_together;
}

void read_assembled(const Checkpoint& checkpoint, const AssembledMatrix& matrix, uint64_t at,
                    std::span<std::byte> out) {
    if (at == 0 && matrix.shape != nullptr) check_stated_shape(checkpoint, matrix);
    const int64_t step = matrix.kind == Kind::awq ? k_awq_rows : 1;
    const auto begin = static_cast<int64_t>(at);
    const int64_t end = begin + std::ssize(out);
    const int64_t first = begin / matrix.row_bytes / step * step;
    const int64_t last = blocks_of(blocks_of(end, matrix.row_bytes), step) * step;
    if (first * matrix.row_bytes == begin && last * matrix.row_bytes == end)
        return read_rows(checkpoint, matrix, first, last - first, out.data());
    std::vector<std::byte> rows((last - first) * matrix.row_bytes);
    read_rows(checkpoint, matrix, first, last - first, rows.data());
    std::copy_n(rows.begin() + (begin - first * matrix.row_bytes), out.size(), out.begin());
}

float read_factor(const Checkpoint& checkpoint, const AssembledMatrix& matrix) {
    if (matrix.factor == nullptr) return matrix.multiplier;
    const float value = read_floats(checkpoint, *matrix.factor, 0, 1).front();
    if (!std::isfinite(value) || value < 0.0F || (matrix.divides && value == 0.0F))
        fail_file(Reason::value, "tensor {} is {}", matrix.factor->name, value);
    return matrix.divides ? 1.0F / value : value;
}

}  // namespace minim::weights
