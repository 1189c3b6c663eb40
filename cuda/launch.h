// SPDX-License-Identifier: Apache-2.0
// The functions that kernel launches need of the runtime, without headers that nvcc cannot compile.
#pragma once

namespace minim::cuda::runtime {

// Returns whether kernels of this thread may start early: as set by use(), unless DebugSwitches::early is off.
bool starts_early() noexcept;

// Call after the launch of a kernel; `type`: the name of its type from typeid(). If the launch failed, last_error() names the
// kernel. With DebugSwitches::sync, waits for the kernel first.
void check_launch(void* stream, const char* kernel_type) noexcept;

}  // namespace minim::cuda::runtime
