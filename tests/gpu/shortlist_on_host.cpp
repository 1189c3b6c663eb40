// SPDX-License-Identifier: Apache-2.0
// The kernels of top-k on emulated threads.
#include "cuda/fast/shortlist.inl"
#include "gpu/emulated_thread.h"
