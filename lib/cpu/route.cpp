// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cassert>

#include "backend/choose_experts.h"
#include "cpu/matrix_tile.h"
#include "cpu/operations.h"

namespace minim::cpu {
void route(const Machine& machine, CpuScratch& scratch, const float* h, int64_t n,
           const backend::Matrix& router, const backend::Vector& bias, int64_t n_used, int32_t* ids,
           float* gates) {
    if (n == 0) return;
    assert(n <= scratch.limits.n_rows && router.rows <= scratch.limits.n_expert && n_used <= router.rows);
    const InputRows input = plain_rows(h, n, router.cols);
    const int64_t tile_rows = rows_of_tile(machine, router, router.rows);
    machine.pool.run((router.rows + tile_rows - 1) / tile_rows, [&](int64_t tile, int32_t thread) {
        const int64_t first = tile * tile_rows;
        compute_tile(machine,
                     {.weight = router,
                      .first = first,
                      .count = std::min(tile_rows, router.rows - first),
                      .y = scratch.router + first,
                      .y_stride = router.rows,
                      .exact = true},
                     input, scratch.of(thread).tile);
    });
    machine.pool.run(n, [&](int64_t i, int32_t) {
        float* score = scratch.router + i * router.rows;
        machine.kernels.sigmoid(score, router.rows, score);
        backend::choose_experts(score, router.rows, bias.size > 0 ? bias.data : nullptr, n_used,
                                ids + i * n_used, gates + i * n_used);
    });
}

}  // namespace minim::cpu
