// What launches of kernels ask of cuda/runtime.h: no more than nvcc compiles.
#pragma once

namespace minim::cuda::runtime {

// Whether kernels of this thread may start early: what use() said, unless DebugSwitches::early is off.
bool starts_early() noexcept;

// After the launch of a kernel of the type that typeid() names so: if it failed last_error() names the kernel. With
// DebugSwitches::sync waits for the kernel first.
void check_launch(void* stream, const char* kernel_type) noexcept;

}  // namespace minim::cuda::runtime
