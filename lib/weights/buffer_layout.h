// SPDX-License-Identifier: Apache-2.0
// The layout of the weights of one device: one buffer, or one for each NUMA node for split rows and one more for
// everything else. It is planned from specs only, before any memory is allocated.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "backend/host_device.h"
#include "weights/expand.h"
#include "weights/spec.h"

namespace minim::weights {

inline uint64_t bytes_of(const backend::Matrix& matrix) {
    return static_cast<uint64_t>(matrix.rows * matrix.row_bytes);
}

// Rows of a weight that are contiguous in the checkpoint and in their target.
struct Run {
    const WeightSpec* weight = nullptr;
    uint64_t from = 0;       // position in the weight's bytes
    backend::Matrix read;    // as they are read; `packed`: they are packed while loading
    backend::Matrix stored;  // as they are stored; `data` is null
    size_t buffer = 0;
    uint64_t to = 0;  // from the start of the buffer

    // Returns the position at which a row that begins `at` bytes into the run is stored. `at` may be any byte if rows
    // keep their size.
    uint64_t stored_at(uint64_t at) const {
        if (stored.row_bytes == read.row_bytes) return at;
        return at / static_cast<uint64_t>(read.row_bytes) * static_cast<uint64_t>(stored.row_bytes);
    }
};

// The matrices of one device as operations take them, one for each weight.
struct PlacedMatrices {
    std::vector<backend::Matrix> matrices;
    std::deque<backend::RowBlocks> blocks;  // that matrices point to; elements keep their addresses
};

struct BufferLayoutOptions {
    bool splits_nodes = false;  // rows of products are split over the NUMA nodes of the device's memory
    UnpackedFormats unpacked = {};
    uint64_t alignment = 64;  // of every run
    uint64_t first_byte = 0;  // position of the first run in the single buffer
};

class BufferLayout {
  public:
    // The weights and the host must outlive it. While weights are loaded, `host` packs those that are used in products,
    // if it packs their format; null: nothing is packed.
    BufferLayout(std::span<const WeightSpec* const> weights, const backend::HostDevice* host,
                 const BufferLayoutOptions& options);

    std::span<const Run> runs() const noexcept { return runs_; }  // in the order of the weights
    // Returns the indexes of the runs in the order of the files, so that files are read in sequence.
    std::span<const uint32_t> file_order() const noexcept { return file_order_; }
    std::span<const uint64_t> buffer_bytes() const noexcept { return buffer_bytes_; }
    size_t common_buffer() const noexcept { return buffer_bytes_.size() - 1; }

    uint64_t read_bytes() const noexcept { return read_bytes_; }
    uint64_t stored_bytes() const noexcept { return stored_bytes_; }
    const UnpackedFormats& unpacked() const noexcept { return options_.unpacked; }

    // Returns the granularity of reads of the run in bytes: whole panels if it is packed, whole groups of rows of an
    // assembled matrix that is not packed; else 1.
    uint64_t unit_bytes(const Run& run) const noexcept;

    // Returns the matrices once each run lies at place(run). Their factors are 1.
    PlacedMatrices placed(const std::function<const std::byte*(const Run&)>& place) const;

  private:
    backend::Matrix matrix_of(const WeightSpec& weight) const;
    backend::Matrix stored(const backend::Matrix& read) const;
    std::vector<int64_t> first_rows(const WeightSpec& weight) const;
    void add(const WeightSpec& weight);
    void add_run(const Run& run);
    void find_places();

    std::span<const WeightSpec* const> weights_;
    const backend::HostDevice* host_;
    const BufferLayoutOptions options_;
    std::vector<Run> runs_;
    std::vector<uint32_t> file_order_;
    std::vector<uint64_t> buffer_bytes_;
    uint64_t read_bytes_ = 0;
    uint64_t stored_bytes_ = 0;
};

}  // namespace minim::weights
