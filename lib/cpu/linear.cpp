#include <algorithm>
#include <cassert>

#include "cpu/matrix_tile.h"
#include "cpu/operations.h"

namespace minim::cpu {
namespace {

// Input rows that tiles of weights pass over before the next ones come: about 0.5 MB of a hidden state of 3072,
// which the second-level cache keeps.
constexpr int64_t k_block_rows = 128;

// The weights of all tasks, cut into tiles of `rows` rows.
struct Tiles {
    std::span<const backend::LinearTask> tasks;
    int64_t rows;

    int64_t count(const backend::LinearTask& task) const { return (task.weight->rows + rows - 1) / rows; }
};

struct TaskTile {
    const backend::LinearTask& task;
    int64_t first;
    int64_t count;
};

// A tile by its number among those of all tasks.
TaskTile tile_at(const Tiles& tiles, int64_t index) {
    size_t t = 0;
    while (index >= tiles.count(tiles.tasks[t])) index -= tiles.count(tiles.tasks[t++]);
    const int64_t first = index * tiles.rows;
    return {tiles.tasks[t], first, std::min(tiles.rows, tiles.tasks[t].weight->rows - first)};
}

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
    int64_t n_tiles = 0;
    for (const backend::LinearTask& task : tasks) n_tiles += tiles.count(task);

    machine.pool.run(n_blocks * n_tiles, [&](int64_t index, int32_t thread) {
        const int64_t first_row = index / n_tiles * k_block_rows;
        const TaskTile tile = tile_at(tiles, index % n_tiles);
        // What the thread reads afterwards if all keep step.
        const TaskTile next = tile_at(tiles, (index + machine.pool.n_threads()) % n_tiles);
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
