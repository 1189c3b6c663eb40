// SPDX-License-Identifier: Apache-2.0
// The kernel that narrows inputs on emulated threads.
#include "cuda/fast/narrow.inl"
#include "gpu/emulated_thread.h"
