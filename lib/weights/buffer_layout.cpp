// SPDX-License-Identifier: Apache-2.0
#include "weights/buffer_layout.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/checked.h"

namespace minim::weights {
namespace {

using backend::Matrix;

// AWQ holds the codes of eight rows in one word.
constexpr int64_t k_assembled_rows = 8;

// Returns the first byte of a run in the checkpoint's files.
std::tuple<int32_t, uint64_t> file_position(const Run& run) {
    const checkpoint::Tensor& tensor = *run.weight->source.tensor;
    return {tensor.part, tensor.offset + run.weight->source_at(run.from)};
}

}  // namespace

BufferLayout::BufferLayout(std::span<const WeightSpec* const> weights, const backend::HostDevice* host,
                           const BufferLayoutOptions& options)
    : weights_(weights), host_(host), options_(options) {
    const int32_t n_nodes = options_.splits_nodes ? host_->host_memory().n_nodes() : 1;
    buffer_bytes_.resize(n_nodes == 1 ? 1 : n_nodes + 1);
    for (const WeightSpec* weight : weights_) add(*weight);
    find_places();
}

// Returns the matrix as it is stored once it is packed.
Matrix BufferLayout::stored(const Matrix& read) const {
    Matrix stored = read;
    if (!read.packed || !options_.unpacked.contains(read.format)) return stored;
    stored.format = options_.unpacked.stored_format(read.format);
    stored.row_bytes = row_bytes(stored.format, stored.cols);
    return stored;
}

// Returns the first row in each buffer, and the number of rows. Rows that are not split are in the common buffer.
std::vector<int64_t> BufferLayout::first_rows(const WeightSpec& weight) const {
    if (weight.use != Use::product || buffer_bytes_.size() == 1) return {0, weight.rows};
    const int64_t granule = std::max(host_->pack_rows_together(), backend::k_split_rows);
    return host_->host_memory().rows_of_nodes(weight.rows, granule);
}

// Returns the matrix as it is read.
Matrix BufferLayout::matrix_of(const WeightSpec& weight) const {
    return {.format = weight.format,
            .rows = weight.rows,
            .cols = weight.cols,
            .row_bytes = weight.row_bytes,
            .packed = host_ != nullptr && weight.use == Use::product && host_->packs(weight.format)};
}

void BufferLayout::add(const WeightSpec& weight) {
    Matrix read = matrix_of(weight);
    const std::vector<int64_t> first = first_rows(weight);
    const size_t n_blocks = first.size() - 1;
    for (size_t k = 0; k < n_blocks; ++k) {
        const auto from = static_cast<uint64_t>(first[k] * read.row_bytes);
        read.rows = first[k + 1] - first[k];
        add_run({&weight, from, read, stored(read), n_blocks == 1 ? common_buffer() : k});
    }
}

void BufferLayout::add_run(const Run& run) {
    if (bytes_of(run.read) > 0) runs_.push_back(run);
}

void BufferLayout::find_places() {
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

uint64_t BufferLayout::unit_bytes(const Run& run) const noexcept {
    if (run.read.packed) return static_cast<uint64_t>(host_->pack_rows_together() * run.read.row_bytes);
    // With a host, the unit is 1 byte also for assembled rows: packed files have a hash for each piece, and the pieces
    // must not depend on how rows are assembled.
    const bool is_assembled = run.weight->source.assembled != nullptr && host_ == nullptr;
    return is_assembled ? static_cast<uint64_t>(k_assembled_rows * run.read.row_bytes) : 1;
}

PlacedMatrices BufferLayout::placed(const std::function<const std::byte*(const Run&)>& place) const {
    PlacedMatrices all;
    size_t next = 0;
    const auto take = [&](const Matrix& rows) -> const std::byte* {
        return bytes_of(rows) == 0 ? nullptr : place(runs_[next++]);
    };
    for (const WeightSpec* weight : weights_) {
        Matrix matrix = stored(matrix_of(*weight));
        Matrix block = matrix;
        backend::RowBlocks blocks = {first_rows(*weight), {}};
        for (size_t k = 0; k + 1 < blocks.first_row.size(); ++k) {
            block.rows = blocks.first_row[k + 1] - blocks.first_row[k];
            blocks.data.push_back(take(block));
        }
        matrix.data = blocks.data.front();
        if (blocks.data.size() > 1) matrix.blocks = &all.blocks.emplace_back(std::move(blocks));
        all.matrices.push_back(matrix);
    }
    return all;
}

}  // namespace minim::weights
