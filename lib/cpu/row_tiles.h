// SPDX-License-Identifier: Apache-2.0
// Cuts the rows of a job into tiles. Blocks of rows are on NUMA nodes: tiles are numbered node after node, so that the thread
// pool can give each node's threads the tiles in their memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "base/topology.h"

namespace minim::cpu {

// Rows first .. first + count - 1 of part `part`; count is 0 if there are none.
struct RowTile {
    int64_t first = 0;
    int64_t count = 0;
};

// The tiles of one matrix, or of every expert of a stack: all experts are split in the same way.
class RowTiles {
  public:
    // `blocks` may be null.
    RowTiles(int64_t n_rows, const backend::RowBlocks* blocks, int64_t tile_rows)
        : n_rows_(n_rows), blocks_(blocks), tile_rows_(tile_rows) {}

    int32_t n_parts() const { return blocks_ == nullptr ? 1 : static_cast<int32_t>(blocks_->data.size()); }
    int64_t count(int32_t part) const {
        return (end_of(part) - first_of(part) + tile_rows_ - 1) / tile_rows_;
    }
    RowTile tile(int32_t part, int64_t index) const {
        const int64_t first = first_of(part) + index * tile_rows_;
        return {first, std::min(tile_rows_, end_of(part) - first)};
    }

  private:
    int64_t first_of(int32_t part) const { return blocks_ == nullptr ? 0 : blocks_->first_row[part]; }
    int64_t end_of(int32_t part) const {
        return blocks_ == nullptr ? n_rows_ : blocks_->first_row[int64_t{part} + 1];
    }

    int64_t n_rows_;
    const backend::RowBlocks* blocks_;
    int64_t tile_rows_;
};

// Numbers the tasks of a job part after part.
struct TaskParts {
    std::array<int64_t, k_max_nodes + 1> first = {};
    int32_t n_parts = 0;

    void add(int64_t n_tasks) {
        first[int64_t{n_parts} + 1] = first[n_parts] + n_tasks;
        ++n_parts;
    }
    std::span<const int64_t> bounds() const { return {first.data(), static_cast<size_t>(n_parts) + 1}; }
    int32_t part_of(int64_t task) const {
        int32_t part = 0;
        while (first[int64_t{part} + 1] <= task) ++part;
        return part;
    }
    int64_t begin(int32_t part) const { return first[part]; }
    int64_t end(int32_t part) const { return first[int64_t{part} + 1]; }
};

}  // namespace minim::cpu
