// SPDX-License-Identifier: Apache-2.0
// The function of `shortlist.h`, over launch(stream, grid, kernel), which the including file defines.
#include "cuda/fast/shortlist_kernels.h"

namespace minim::cuda::fast {
namespace {

template <class Kernel>
void start_rows(Stream stream, const Kernel& kernel) {
    launch(stream, kernel.grid(), kernel);
}

}  // namespace

void shortlist(Stream stream, const float* logits, int64_t n, int64_t n_vocab, const ShortlistWork& work,
               const backend::ShortlistTask& task) {
    if (n == 0) return;
    start_rows(stream, ShortlistPieceKernel{logits, n, n_vocab, task.rows, work});
    start_rows(stream, ShortlistJoinKernel{logits, n, n_vocab, work, task});
    start_rows(stream, ExactTotalKernel{logits, n, n_vocab, task});
}

}  // namespace minim::cuda::fast
