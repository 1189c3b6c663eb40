// SPDX-License-Identifier: Apache-2.0
// The attention kernels on emulated threads.
#include "cuda/fast/attend.inl"
#include "gpu/emulated_thread.h"
