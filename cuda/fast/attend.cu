// SPDX-License-Identifier: Apache-2.0
#include "cuda/fast/attend.inl"
#include "cuda/fast/device_thread.h"
