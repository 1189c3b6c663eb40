// SPDX-License-Identifier: Apache-2.0
// The functions of peer_sum.h, over launch(stream, grid, kernel), which the including file defines.
#include "cuda/fast/peer_sum_kernels.h"

namespace minim::cuda::fast {
namespace {

template <class Kernel>
void start_on_peers(Stream stream, const Kernel& kernel) {
    launch(stream, kernel.grid(), kernel);
}

}  // namespace

void sum_peers(Stream stream, const Peers& peers, float* data, int64_t count) {
    start_on_peers(stream, SumPeersKernel{peers, data, count});
}

void write_peers(Stream stream, const Peers& peers, float seed) {
    start_on_peers(stream, WritePeersKernel{peers, seed});
}

void add_parts(Stream stream, const float* parts, int64_t count, int32_t n_ranks, int32_t rank, float* data) {
    start_on_peers(stream, AddPartsKernel{parts, count, n_ranks, rank, data});
}

}  // namespace minim::cuda::fast
