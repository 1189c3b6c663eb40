#pragma once

// A part of a kernel that has to melt into its caller. Under a sanitizer, whose checks would make such
// functions too large to compile in reasonable time, the compiler decides.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MINIM_KERNEL_INLINE inline
#define MINIM_KERNEL_INLINE_LAMBDA
#else
#define MINIM_KERNEL_INLINE inline __attribute__((always_inline))
#define MINIM_KERNEL_INLINE_LAMBDA __attribute__((always_inline))
#endif
