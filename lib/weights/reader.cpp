// SPDX-License-Identifier: Apache-2.0
#include "weights/reader.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "layouts/layout.h"

namespace minim::weights {
namespace {

// The most bytes of whole rows that are read at a time to cut columns out of them, or one group of rows that are assembled together.
constexpr int64_t k_cut_bytes = int64_t{128} << 10;

// Returns whether a vector is not stored as the floats that operations read.
bool is_converted(const WeightSpec& weight) {
    return weight.use == Use::vector &&
           (weight.source.tensor->format != weight.format || weight.source.added != 0.0F);
}

// Reads bytes of the source.
void read_source(const checkpoint::Checkpoint& checkpoint, const WeightSource& source, uint64_t at,
                 std::span<std::byte> out) {
    if (source.assembled != nullptr) return layouts::read_assembled(checkpoint, *source.assembled, at, out);
    checkpoint.read(*source.tensor, at, out);
}

// Reads some elements of a vector that is not stored as it is used. All of it is converted: it has some thousand numbers.
void read_converted(const checkpoint::Checkpoint& checkpoint, const WeightSpec& weight, uint64_t at,
                    std::span<std::byte> out) {
    const Format format = *weight.source.tensor->format;
    std::vector<std::byte> stored(row_bytes(format, weight.cols));
    checkpoint.read(*weight.source.tensor, weight.source.offset, stored);
    std::vector<float> values(weight.cols);
    traits(format).decode_row(stored.data(), weight.cols, values.data());
    for (float& value : values) value += weight.source.added;
    std::memcpy(out.data(), std::as_bytes(std::span(values)).data() + at, out.size());
}

// Copies bytes [from, from + out.size()) of a row of the weight out of a row of its source.
void cut_row(const WeightSpec& weight, const std::byte* source_row, int64_t from, std::span<std::byte> out) {
    const int64_t header = traits(weight.format).row_header_bytes;
    const int64_t n_of_header = std::clamp<int64_t>(header - from, 0, std::ssize(out));
    std::copy_n(source_row + from, n_of_header, out.begin());
    const int64_t block_at = weight.source.columns->first_byte + from + n_of_header - header;
    std::copy_n(source_row + block_at, std::ssize(out) - n_of_header, out.begin() + n_of_header);
}

void read_columns(const checkpoint::Checkpoint& checkpoint, const WeightSpec& weight, uint64_t at,
                  std::span<std::byte> out) {
    const int64_t source_bytes = weight.source_row_bytes();
    const int64_t begin = static_cast<int64_t>(at);
    const int64_t end = begin + std::ssize(out);
    const int64_t end_row = (end + weight.row_bytes - 1) / weight.row_bytes;
    constexpr int64_t k_together = layouts::k_rows_together;
    const int64_t n_at_once = std::max<int64_t>(k_cut_bytes / source_bytes / k_together, 1) * k_together;
    const int64_t first_row = begin / weight.row_bytes;
    std::vector<std::byte> rows(std::min(n_at_once, end_row - first_row) * source_bytes);
    for (int64_t first = first_row; first < end_row; first += n_at_once) {
        const int64_t n = std::min(n_at_once, end_row - first);
        const uint64_t source_at = weight.source.offset + static_cast<uint64_t>(first * source_bytes);
        read_source(checkpoint, weight.source, source_at, std::span(rows).first(n * source_bytes));
        for (int64_t i = 0; i < n; ++i) {
            const int64_t row_at = (first + i) * weight.row_bytes;
            const int64_t from = std::max(begin, row_at);
            const int64_t count = std::min(end, row_at + weight.row_bytes) - from;
            cut_row(weight, rows.data() + i * source_bytes, from - row_at, out.subspan(from - begin, count));
        }
    }
}

}  // namespace

void Reader::read(const WeightSpec& weight, uint64_t at, std::span<std::byte> out) const {
    if (weight.source.columns) return read_columns(*checkpoint_, weight, at, out);
    if (is_converted(weight)) return read_converted(*checkpoint_, weight, at, out);
    read_source(*checkpoint_, weight.source, weight.source.offset + at, out);
}

float Reader::factor(const WeightSpec& weight) const {
    const WeightSource& source = weight.source;
    if (source.assembled != nullptr) return source.assembled->factor(*checkpoint_);
    if (source.factor == nullptr) return 1.0F;
    float value = 0.0F;
    checkpoint_->read(*source.factor, static_cast<uint64_t>(source.factor_index) * sizeof(value),
                      std::as_writable_bytes(std::span(&value, 1)));
    return value;
}

const std::byte* Reader::mapped(const WeightSpec& weight) const {
    const WeightSource& source = weight.source;
    if (!weight.is_contiguous() || is_converted(weight)) return nullptr;
    const std::byte* data = checkpoint_->data(*source.tensor) + source.offset;
    const bool is_misplaced =
        weight.use == Use::vector && reinterpret_cast<uintptr_t>(data) % alignof(float) != 0;
    return is_misplaced ? nullptr : data;
}

Reader::SourceBytes Reader::source_bytes(const WeightSpec& weight, uint64_t at, uint64_t bytes) noexcept {
    const WeightSource& source = weight.source;
    if (source.assembled != nullptr || is_converted(weight)) return {};
    const uint64_t from = weight.source_at(at);
    const uint64_t end =
        source.columns ? weight.source_at(at + bytes - 1) + source.columns->row_bytes : from + bytes;
    return {source.tensor, from, end - from};
}

void Reader::read_ahead(const WeightSpec& weight, uint64_t at, uint64_t bytes) const noexcept {
    const SourceBytes read = source_bytes(weight, at, bytes);
    if (read.tensor != nullptr) checkpoint_->read_ahead(*read.tensor, read.from, read.count);
}

void Reader::forget(const WeightSpec& weight, uint64_t at, uint64_t bytes) const noexcept {
    const SourceBytes read = source_bytes(weight, at, bytes);
    if (read.tensor != nullptr) checkpoint_->forget(*read.tensor, read.from, read.count);
}

}  // namespace minim::weights
