// SPDX-License-Identifier: Apache-2.0
#include "weights/layout.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/checked.h"

namespace minim::weights {
namespace {

using backend::Matrix;

// AWQ holds the codes of eight rows in one word.
constexpr int64_t k_assembled_rows = 8;

uint64_t bytes_of(const Matrix& matrix) {
    return static_cast<uint64_t>(matrix.rows * matrix.row_bytes);
}

// Returns the first byte of a run in the checkpoint's files.
std::tuple<int32_t, uint64_t> file_position(const Run& run) {
    const Source& source = run.weight->source;
    return {source.tensor->part, source.tensor->offset + source.offset + run.from};
}

}  // namespace

Layout::Layout(std::span<const WeightSpec* const> weights, const backend::HostDevice* host,
               const LayoutOptions& options)
    : weights_(weights), host_(host), options_(options) {
    const int32_t n_nodes = options_.splits_nodes ? host_->host_memory().n_nodes() : 1;
    buffer_bytes_.resize(n_nodes == 1 ? 1 : n_nodes + 1);
    for (const WeightSpec* weight : weights_) add(*weight);
    find_places();
}

// Returns the matrix as it is stored once it is packed.
Matrix Layout::stored(const Matrix& read) const {
    Matrix stored = read;
    if (!read.packed || !options_.unpacked.contains(read.format)) return stored;
    stored.format = options_.unpacked.stored_format(read.format);
    stored.row_bytes = row_bytes(stored.format, stored.cols);
    return stored;
}

// Returns how the rows of the weight are split over NUMA nodes; null: they are not. Weights with equally many rows
// share one split.
const backend::RowSplit* Layout::split_of(const WeightSpec& weight) {
    if (weight.use != Use::product || buffer_bytes_.size() == 1) return nullptr;
    for (const backend::RowSplit& split : splits_)
        if (split.first_row.back() == weight.rows) return &split;
    const int64_t granule = std::max(host_->pack_rows_together(), backend::k_split_rows);
    splits_.push_back({host_->host_memory().rows_of_nodes(weight.rows, granule)});
    return &splits_.back();
}

void Layout::add(const WeightSpec& weight) {
    Matrix read = {
        .format = weight.format, .rows = weight.rows, .cols = weight.cols, .row_bytes = weight.row_bytes};
    read.packed = host_ != nullptr && weight.use == Use::product && host_->packs(weight.format);
    const backend::RowSplit* split = split_of(weight);
    split_.push_back(split);
    if (split == nullptr) return add_run({&weight, 0, read, stored(read), common_buffer()});
    for (size_t k = 0; k + 1 < split->first_row.size(); ++k) {
        const auto from = static_cast<uint64_t>(split->first_row[k] * read.row_bytes);
        read.rows = split->first_row[k + 1] - split->first_row[k];
        add_run({&weight, from, read, stored(read), k});
    }
}

void Layout::add_run(const Run& run) {
    if (bytes_of(run.read) > 0) runs_.push_back(run);
}

void Layout::find_places() {
    file_order_.resize(runs_.size());
    std::iota(file_order_.begin(), file_order_.end(), 0U);
    std::ranges::stable_sort(file_order_, {}, [&](uint32_t i) { return file_position(runs_[i]); });
    buffer_bytes_[0] = options_.first_byte;
    for (const uint32_t i : file_order_) {
        Run& run = runs_[i];
        run.to = align_up(buffer_bytes_[run.buffer], options_.alignment);
        buffer_bytes_[run.buffer] = run.to + bytes_of(run.stored);
        read_bytes_ += bytes_of(run.read);
        stored_bytes_ += bytes_of(run.stored);
    }
}

uint64_t Layout::unit_bytes(const Run& run) const noexcept {
    if (run.read.packed) return static_cast<uint64_t>(host_->pack_rows_together() * run.read.row_bytes);
    // With a host, the unit is 1 byte also for assembled rows: packed files have a hash for each piece, and the pieces
    // must not depend on how rows are assembled.
    const bool is_assembled = run.weight->source.assembled != nullptr && host_ == nullptr;
    return is_assembled ? static_cast<uint64_t>(k_assembled_rows * run.read.row_bytes) : 1;
}

PlacedMatrices Layout::placed(const std::function<const std::byte*(const Run&)>& place) const {
    PlacedMatrices all;
    all.splits = splits_;
    size_t next = 0;
    const auto take = [&](const Matrix& rows) -> const std::byte* {
        return bytes_of(rows) == 0 ? nullptr : place(runs_[next++]);
    };
    for (size_t i = 0; i < weights_.size(); ++i) {
        const WeightSpec& weight = *weights_[i];
        Matrix matrix = {
            .format = weight.format, .rows = weight.rows, .cols = weight.cols, .row_bytes = weight.row_bytes};
        matrix.packed = host_ != nullptr && weight.use == Use::product && host_->packs(weight.format);
        matrix = stored(matrix);
        if (split_[i] == nullptr) {
            matrix.data = take(matrix);
        } else {
            const auto n = std::ranges::find(splits_, split_[i], [](const auto& split) { return &split; });
            matrix.split = &all.splits[n - splits_.begin()];
            std::vector<const std::byte*>& parts = all.parts.emplace_back();
            for (int64_t k = 0; k < matrix.split->n_parts(); ++k) {
                Matrix part = matrix;
                part.rows = matrix.split->first_row[int64_t{k} + 1] - matrix.split->first_row[k];
                parts.push_back(take(part));
            }
            matrix.part = parts.data();
            matrix.data = parts.front();
        }
        all.matrices.push_back(matrix);
    }
    return all;
}

}  // namespace minim::weights
