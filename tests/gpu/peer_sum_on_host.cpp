// SPDX-License-Identifier: Apache-2.0
// The kernels of sums over ranks on emulated threads.
#include "cuda/fast/peer_sum.inl"
#include "gpu/emulated_thread.h"
