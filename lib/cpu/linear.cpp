#include <algorithm>
#include <cassert>

#include "cpu/matrix_tile.h"
#include "cpu/operations.h"

namespace minim::cpu {
namespace {

// Input rows that tiles of weights pass over before the next ones come: about 0.5 MB of a hidden state of 3072,
// which the second-level cache keeps.
constexpr int64_t k_block_rows = 128;

int64_t tile_count(const backend::Matrix& weight) {
    const int64_t rows = rows_of_tile(weight);
    return (weight.rows + rows - 1) / rows;
}

// A tile of one of the tasks, by its number among all their tiles.
struct TaskTile {
    const backend::LinearTask& task;
    int64_t first;
    int64_t count;
};

TaskTile tile_of(std::span<const backend::LinearTask> tasks, int64_t index) {
    size_t t = 0;
    while (index >= tile_count(*tasks[t].weight)) index -= tile_count(*tasks[t++].weight);
    const int64_t rows = rows_of_tile(*tasks[t].weight);
    return {tasks[t], index * rows, std::min(rows, tasks[t].weight->rows - index * rows)};
}

}  // namespace

void linear(const Machine& machine, CpuScratch& scratch, const float* h, int64_t n,
            std::span<const backend::LinearTask> tasks) {
    if (n == 0 || tasks.empty()) return;
    const int64_t cols = tasks[0].weight->cols;
    assert(n <= scratch.limits.n_rows && cols <= scratch.max_cols);

    InputRows input = plain_rows(h, n, cols);
    int64_t n_tiles = 0;
    for (const backend::LinearTask& task : tasks) {
        assert(task.weight->cols == cols);
        const Activation activation = activation_for(machine.kernels, task.weight->format);
        quantize_rows(machine, activation, h, n, cols, scratch.input[static_cast<size_t>(activation)], input);
        n_tiles += tile_count(*task.weight);
    }

    const int64_t n_blocks = (n + k_block_rows - 1) / k_block_rows;
    machine.pool.run(n_blocks * n_tiles, [&](int64_t index, int32_t thread) {
        const int64_t first_row = index / n_tiles * k_block_rows;
        const TaskTile tile = tile_of(tasks, index % n_tiles);
        // What the thread reads afterwards if all keep step.
        const TaskTile next = tile_of(tasks, (index + machine.pool.n_threads()) % n_tiles);
        const backend::Matrix& weight = *tile.task.weight;
        compute_tile(machine,
                     {.weight = weight,
                      .first = tile.first,
                      .count = tile.count,
                      .y = tile.task.y + first_row * weight.rows,
                      .y_stride = weight.rows,
                      .add = tile.task.add,
                      .next_weight = next.task.weight->data + next.first * next.task.weight->row_bytes},
                     rows_of(input, first_row, std::min(k_block_rows, n - first_row)),
                     scratch.tile_of(thread));
    });
}

}  // namespace minim::cpu
