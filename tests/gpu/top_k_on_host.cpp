// SPDX-License-Identifier: Apache-2.0
// The kernels of top-k on emulated threads.
#include "cuda/fast/top_k.inl"
#include "gpu/emulated_thread.h"
