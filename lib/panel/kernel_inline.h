// SPDX-License-Identifier: Apache-2.0
// Attributes of the functions that kernels consist of.
#pragma once

// MINIM_KERNEL_FUNCTION: a part of a CPU kernel, or of CPU and GPU kernels.
// MINIM_KERNEL_INLINE: a function that must be inlined into its caller. With a sanitizer the compiler decides, because the checks
// would make such functions too large to compile in reasonable time.
#if defined(__CUDACC__)
#define MINIM_KERNEL_FUNCTION __host__ __device__ __forceinline__
#define MINIM_KERNEL_INLINE __host__ __device__ __forceinline__
#define MINIM_KERNEL_INLINE_LAMBDA
#else
#define MINIM_KERNEL_FUNCTION
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MINIM_KERNEL_INLINE inline
#define MINIM_KERNEL_INLINE_LAMBDA
#else
#define MINIM_KERNEL_INLINE inline __attribute__((always_inline))
#define MINIM_KERNEL_INLINE_LAMBDA __attribute__((always_inline))
#endif
#endif
