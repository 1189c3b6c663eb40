// SPDX-License-Identifier: Apache-2.0
#include "cuda/fast/device_thread.h"
#include "cuda/fast/peer_sum.inl"
