// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cassert>

#include "cpu/matrix_tile.h"
#include "cpu/operations.h"
#include "cpu/row_tiles.h"

namespace minim::cpu {
namespace {

// The number of input rows that all tiles of weights are multiplied with before the next rows: about 0.5 MB for a hidden state of
// 3072, which fits the second-level cache.
constexpr int64_t k_block_rows = 128;

struct TaskTile {
    const backend::LinearTask* task = nullptr;
    RowTile rows;
};

// The weights of all tasks, cut into tiles of `rows` rows. Matrices that are not split belong to the first part.
struct Tiles {
    std::span<const backend::LinearTask> tasks;
    int64_t rows;

    RowTiles of(const backend::LinearTask& task) const {
        return {task.weight->rows, task.weight->blocks, rows};
    }
    int32_t n_parts() const {
        int32_t n = 1;
        for (const backend::LinearTask& task : tasks) n = std::max(n, of(task).n_parts());
        return n;
    }
    int64_t count(int32_t part) const {
        int64_t n = 0;
        for (const backend::LinearTask& task : tasks) n += count(task, part);
        return n;
    }
    // Returns tile `index` of a part.
    TaskTile tile(int32_t part, int64_t index) const {
        size_t t = 0;
        while (index >= count(tasks[t], part)) index -= count(tasks[t++], part);
        return {&tasks[t], of(tasks[t]).tile(part, index)};
    }

  private:
    int64_t count(const backend::LinearTask& task, int32_t part) const {
        const RowTiles tiles = of(task);
        return part < tiles.n_parts() ? tiles.count(part) : 0;
    }
};

}  // namespace

void linear(const Machine& machine, CpuScratch& scratch, const float* h, int64_t n,
            std::span<const backend::LinearTask> tasks) {
    if (n == 0 || tasks.empty()) return;
    const int64_t cols = tasks[0].weight->cols;
    assert(n <= scratch.limits.n_rows && cols <= scratch.max_cols);

    InputRows input = plain_rows(h, n, cols);
    const int64_t n_blocks = (n + k_block_rows - 1) / k_block_rows;
    int64_t n_job_rows = 0;
    for (const backend::LinearTask& task : tasks) {
        assert(task.weight->cols == cols);
        const Activation activation = activation_for(machine.kernels, task.weight->format);
        quantize_rows(machine, activation, h, n, cols, scratch.input[static_cast<size_t>(activation)], input);
        n_job_rows += task.weight->rows * n_blocks;
    }
    Tiles tiles = {tasks, INT64_MAX};
    for (const backend::LinearTask& task : tasks)
        tiles.rows = std::min(tiles.rows, rows_of_tile(machine, *task.weight, n_job_rows));
    TaskParts parts;
    const int32_t n_parts = tiles.n_parts();
    for (int32_t part = 0; part < n_parts; ++part) parts.add(n_blocks * tiles.count(part));

    machine.pool.run_parts(parts.bounds(), [&](int64_t index, int32_t thread) {
        const int32_t part = parts.part_of(index);
        const int64_t n_tiles = (parts.end(part) - parts.begin(part)) / n_blocks;
        index -= parts.begin(part);
        const int64_t first_row = index / n_tiles * k_block_rows;
        const auto [task, rows] = tiles.tile(part, index % n_tiles);
        // The weights that the thread most likely reads next.
        const TaskTile next = tiles.tile(part, (index + 1) % n_tiles);
        const backend::Matrix& weight = *task->weight;
        compute_tile(machine,
                     {.weight = weight,
                      .first = rows.first,
                      .count = rows.count,
                      .y = task->y + first_row * weight.rows + rows.first,
                      .y_stride = weight.rows,
                      .add = task->add,
                      .next_weight = next.task->weight->row(next.rows.first)},
                     rows_of(input, first_row, std::min(k_block_rows, n - first_row)),
                     scratch.of(thread).tile);
    });
}

}  // namespace minim::cpu
