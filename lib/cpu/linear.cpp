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
        int64_t tile = index % n_tiles;
        size_t t = 0;
        while (tile >= tile_count(*tasks[t].weight)) tile -= tile_count(*tasks[t++].weight);
        const backend::LinearTask& task = tasks[t];
        const int64_t first = tile * rows_of_tile(*task.weight);
        compute_tile(machine,
                     {.weight = *task.weight,
                      .first = first,
                      .count = std::min(rows_of_tile(*task.weight), task.weight->rows - first),
                      .y = task.y + first_row * task.weight->rows,
                      .y_stride = task.weight->rows,
                      .add = task.add},
                     rows_of(input, first_row, std::min(k_block_rows, n - first_row)),
                     scratch.tile_of(thread));
    });
}

}  // namespace minim::cpu
