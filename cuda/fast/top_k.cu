// SPDX-License-Identifier: Apache-2.0
// Compiled without contraction of a * b + c: the exact total is the host's to the last bit.
#include "cuda/fast/device_thread.h"
#include "cuda/fast/top_k.inl"
