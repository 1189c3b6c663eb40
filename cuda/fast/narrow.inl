// SPDX-License-Identifier: Apache-2.0
// The functions of narrow.h, over launch(stream, grid, kernel), which the including file defines.
#include "cuda/fast/narrow.h"

namespace minim::cuda::fast {
namespace {

template <class Kernel>
void start_narrowing(Stream stream, const Kernel& kernel) {
    launch(stream, kernel.grid(), kernel);
}

}  // namespace

void narrow_to_bf16(Stream stream, const float* x, int64_t count, uint16_t* out) {
    start_narrowing(stream, NarrowKernel{x, count, out});
}

void narrow_to_f16(Stream stream, const float* x, int64_t n, int64_t cols, uint16_t* out, float* factor) {
    start_narrowing(stream, NarrowRowsKernel{x, n, cols, out, factor});
}

void multiply_rows(Stream stream, float* y, int64_t n, int64_t cols, const float* factor) {
    start_narrowing(stream, ScaleRowsKernel{y, n, cols, factor, false});
}

void divide_rows(Stream stream, float* y, int64_t n, int64_t cols, const float* factor) {
    start_narrowing(stream, ScaleRowsKernel{y, n, cols, factor, true});
}

}  // namespace minim::cuda::fast
