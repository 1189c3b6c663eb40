// The function of narrow.h, over launch(stream, grid, kernel), which whoever includes this has defined.
#include "cuda/fast/narrow.h"

namespace minim::cuda::fast {
namespace {

template <class Kernel>
void start_narrowing(Stream stream, const Kernel& kernel) {
    launch(stream, kernel.grid(), kernel);
}

}  // namespace

void narrow(Stream stream, const float* x, int64_t count, Format format, uint16_t* out) {
    start_narrowing(stream, NarrowKernel{x, count, format, out});
}

}  // namespace minim::cuda::fast
