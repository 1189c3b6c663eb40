// How functions that kernels are made of are declared.
#pragma once

// MINIM_KERNEL_FUNCTION: a part of a kernel; of a CPU's and of a GPU's where it is written for both.
// MINIM_KERNEL_INLINE: one that has to melt into its caller. Under a sanitizer, whose checks would make such functions
// too large to compile in reasonable time, the compiler decides.
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
