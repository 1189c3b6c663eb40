// SPDX-License-Identifier: Apache-2.0
// Compiler and target spellings in one place.
#pragma once

// Marks a small function that host kernels and CUDA kernels share. It is always inlined: kernel files are compiled for
// different instruction sets, and an out-of-line copy made for one must never be linked into another.
#if defined(__CUDACC__)
#define MINIM_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define MINIM_HOST_DEVICE inline __attribute__((always_inline))
#endif
