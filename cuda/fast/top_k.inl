// SPDX-License-Identifier: Apache-2.0
// The function of `top_k.h`, over launch(stream, grid, kernel), which the including file defines.
#include "cuda/fast/top_k_kernels.h"

namespace minim::cuda::fast {
namespace {

template <class Kernel>
void start_rows(Stream stream, const Kernel& kernel) {
    launch(stream, kernel.grid(), kernel);
}

}  // namespace

void top_k(Stream stream, const float* logits, int64_t n, int64_t n_vocab, const TopKWork& work,
           const backend::TopKTask& task) {
    if (n == 0) return;
    start_rows(stream, TopKPieceKernel{logits, n, n_vocab, task.rows, work});
    start_rows(stream, TopKJoinKernel{logits, n, n_vocab, work, task});
    start_rows(stream, ExactTotalKernel{logits, n, n_vocab, task});
}

}  // namespace minim::cuda::fast
