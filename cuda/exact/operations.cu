// SPDX-License-Identifier: Apache-2.0
// Shape: one thread an item, blocks of 128. Bytes moved: every weight once for every row of the batch, uncoalesced.
// Bound: by latency; the fast kernels are measured against it.
#include <cuda_runtime.h>

#include <typeinfo>

#include "cuda/debug.h"
#include "cuda/exact/operations.h"
#include "cuda/launch.h"

namespace minim::cuda::exact {
namespace {

constexpr int k_threads = 128;

template <typename Item>
__global__ void __launch_bounds__(k_threads) run(const __grid_constant__ Item item, int64_t n) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * k_threads + threadIdx.x;
    if (i < n) item(i);
}

template <typename Item>
void launch(Stream stream, int64_t n, const Item& item) {
    if (n == 0) return;
    const auto n_blocks = static_cast<unsigned>((n + k_threads - 1) / k_threads);
    // The stream's owner finds errors: it asks for the last one.
    run<<<n_blocks, k_threads, 0, static_cast<cudaStream_t>(stream)>>>(item, n);
    if (debug_switches().sync) runtime::check_launch(stream, typeid(Item).name());
}

}  // namespace
}  // namespace minim::cuda::exact

#include "cuda/exact/operations.inl"
