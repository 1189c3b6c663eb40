#include <algorithm>
#include <cassert>

#include "cpu/matrix_tile.h"
#include "cpu/operations.h"

namespace minim::cpu {
namespace {

// Keeps the sums of real weights untouched and a row of vanishing scores finite.
constexpr float k_smallest_sum = 0x1p-14F;

// The n_used experts of the largest score + bias, sorted; ties go to the lower index. The order of insertion
// keeps them distinct and valid for any scores, NaN included.
void choose(const float* score, int64_t n_expert, const backend::Vector& bias, int64_t n_used, int32_t* ids) {
    const auto biased = [&](int64_t e) { return bias.size > 0 ? score[e] + bias.data[e] : score[e]; };
    int64_t count = 0;
    for (int64_t e = 0; e < n_expert; ++e) {
        const float value = biased(e);
        if (count == n_used && !(value > biased(ids[count - 1]))) continue;
        int64_t place = count < n_used ? count++ : count - 1;
        for (; place > 0 && value > biased(ids[place - 1]); --place) ids[place] = ids[place - 1];
        ids[place] = static_cast<int32_t>(e);
    }
}

}  // namespace

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
                      .y = scratch.router,
                      .y_stride = router.rows,
                      .exact = true},
                     input, scratch.tile_of(thread));
    });
    machine.pool.run(n, [&](int64_t i, int32_t) {
        float* score = scratch.router + i * router.rows;
        machine.kernels.sigmoid(score, router.rows, score);
        int32_t* chosen = ids + i * n_used;
        choose(score, router.rows, bias, n_used, chosen);
        float sum = 0.0F;
        for (int64_t s = 0; s < n_used; ++s) sum += score[chosen[s]];
        sum = std::max(sum, k_smallest_sum);
        for (int64_t s = 0; s < n_used; ++s) gates[i * n_used + s] = score[chosen[s]] / sum;
    });
}

}  // namespace minim::cpu
