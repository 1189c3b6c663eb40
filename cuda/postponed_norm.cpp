// SPDX-License-Identifier: Apache-2.0
#include "cuda/postponed_norm.h"

#include <utility>

#include "cuda/debug.h"
#include "cuda/fast_step.h"
#include "panel/panel.h"

namespace minim::cuda::fast {
namespace {

// The most rows of weights that are multiplied in the kernel that normalises their input. Each of its blocks, of 32 rows, does
// so for itself: these many begin at once on a large GPU (512 blocks on 132 multiprocessors), while those of a head of 200,064
// rows would do it one after another.
constexpr int64_t k_most_norm_rows = 16384;

}  // namespace

bool is_postponed(const cuda::Stream& s, const float* h, int64_t n, int64_t cols) {
    const NormRow& norm = s.postponed;
    return norm.x != nullptr && norm.h == h && n == 1 && norm.size == cols;
}

NormRow take_norm(cuda::Stream& s) {
    const NormRow norm = std::exchange(s.postponed, {});
    s.quantized = {norm.h, 1, norm.size};
    return norm;
}

bool takes_norm(const cuda::Stream& s, const float* h, int64_t n,
                std::span<const backend::LinearTask> tasks) {
    if (tasks.empty() || !is_postponed(s, h, n, tasks[0].weight->cols)) return false;
    if (!tasks[0].weight->packed || tasks[0].weight->rows < panel::k_panel_rows) return false;
    int64_t n_rows = 0;
    for (const backend::LinearTask& task : tasks) {
        const int64_t rows = task.weight->rows;
        n_rows += rows;
        // Blocks that write y run beside others that read x.
        if (overlap(task.y, rows, s.postponed.x, s.postponed.size) ||
            overlap(task.y, rows, h, s.postponed.size))
            return false;
    }
    return n_rows <= k_most_norm_rows;
}

bool postpone_norm(cuda::Stream& s, const float* x, int64_t n, const backend::Vector& weight, float eps,
                   float* h) {
    if (!debug_switches().fold) return false;
    const uintptr_t places = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(weight.data) |
                             reinterpret_cast<uintptr_t>(h);
    if (s.fixed || n != 1 || weight.size % 32 != 0 || weight.size > k_most_norm_size) return false;
    if (places % sizeof(FourFloats) != 0 || overlap(x, weight.size, h, weight.size)) return false;
    forget_input(s);
    s.postponed = {x, weight.data, weight.size, eps, h, s.fast_work.input};
    return true;
}

void launch_postponed(cuda::Stream& s) {
    if (s.postponed.x == nullptr) return;
    const NormRow row = take_norm(s);
    norm(s.stream, row.x, 1, row.weight, row.size, row.eps, row.h, row.quantized);
}

}  // namespace minim::cuda::fast
