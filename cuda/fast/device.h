// SPDX-License-Identifier: Apache-2.0
// Declares kernels that run on a GPU, or thread by thread in tests on machines without one. A kernel is a struct of
// its arguments with
//
//   k_threads                          threads of a block, whole warps
//   void operator()(T& thread) const   the work of each thread
//
// By default, a kernel may begin once the previous one in the stream has begun, and first waits until that one is
// done. Two kinds differ:
//
//   k_starts_early                     if defined, each of the kernel's threads calls wait_for_inputs(). Before that call they
//                                      write nothing, and read no output of a kernel that may still run: that can be any kernel
//                                      ahead in the stream, back to the last one with k_holds_next, because kernels let the next
//                                      one begin before they have waited.
//   k_holds_next                       if defined, the next kernel begins only when a thread of each block has called
//                                      let_next_begin()
//
// and one with k_runs_together launches only grids whose blocks are all on the device at once (runs_together()).
//
// Kernels are written over a vocabulary T of threads. device_thread.h implements it on a GPU,
// tests/gpu/emulated_thread.h without one.
//
//   index(), block(), block_y()        which thread of which block this is
//   shared()                           the block's shared memory, as much as the launch asked for, 128-byte aligned
//   sync()                             waits until every thread of the block gets here
//   sync_stages<n_threads>()           the same for the n_threads of the block, which may get to different places of the kernel: a
//                                      named barrier (PTX bar.sync), where the warps of a block run loops of their own
//   sync_warp()                        the same for the warp; what it has written is seen
//   from_lane_xor(x, mask)             x of lane (own ^ mask) of the warp; a number of 4 or 8 bytes
//   from_lane(x, lane)                 x of a lane of the warp; a float
//   largest_of_lanes(x)                the largest x of the warp's lanes; uint32_t
//   copy_16(to, from)                  starts copying 16 bytes from global to shared memory, both aligned
//   copy_4(to, from)                   the same of 4 bytes
//   copy_16_if(wanted, to, from)       the same, or nothing; without a branch
//   copies_end_group()                 the copies started since the last call are a group
//   copies_wait<n>()                   waits until all but the latest n groups of this thread have arrived
//   mma_s8(c, a, b)                    c[4] += a[4] b[2]: 16 x 32 by 32 x 8 signed bytes (PTX mma.m16n8k32)
//   mma_s8_16(c, a0, a1, b)            the same of the first 16 columns (mma.m16n8k16)
//   mma_f16(c, a, b)                   c[4] += a[4] b[2]: 16 x 16 by 16 x 8 halves, sums in float (mma.m16n8k16)
//   mma_bf16(c, a, b)                  the same of BF16
//   load_matrices(r, row)              four 8 x 8 matrices of 16 bits, rows of 16 bytes given by the lanes (ldmatrix.x4)
//   load_transposed(r, row)            the same, transposed (ldmatrix.x4.trans)
//   multiply_rows<n>(sum, a, b, count) sum[panel] += a[panel] b of the first `count` of n inputs, rounded up to 16: 16 rows a panel,
//                                      16 columns for each fragment a[panel][step]; layout of b: multiply_rows.h. Of panel p,
//                                      sum[p][i / 8] is that of mma_f16() for inputs i / 8 * 8 .. i / 8 * 8 + 7
//   multiply_rows<n, Format::bf16>(..) the same of BF16
//   multiply_scaled_rows<n>(sum, a, scale, b, count)
//                                      sum[panel] += scale[panel] (a[panel] b): the products are added up first; scale[panel][r] is
//                                      that of the rows of sum[panel][i / 8][2 r] and [2 r + 1]
//   pack_f16(a, b)                     two floats as halves, a the lower one
//   subtract_f16(a, b)                 the two halves in a less those in b
//   multiply_f16(a, b)                 the two halves in a times those in b
//   fma_f16(a, b, c)                   the two halves in a times those in b plus those in c, rounded once
//   halves_of_e4m3(r, codes)           four codes (format/e4m3.h) as halves, exactly: bytes 0 and 2 to r[0], 1 and 3 to r[1]; before sm_89
//                                      NaN becomes 480
//   exp2(x)                            to about 2 units in the last place
//   add_to(p, x)                       adds to *p, in shared or global memory, at once (atomic), returns what was there; int32_t
//   wait_for_inputs()                  waits until earlier work in the stream is done and visible
//   let_next_begin()                   this thread allows the next kernel to begin
//   prefetch(p, bytes)                 brings global memory into the second-level cache, on devices where kernels begin early; both
//                                      multiples of 16. One lane of a warp calls it: calls of several lanes run one after another
//   load_fresh(p)                      *p, a number in global memory, from the second-level cache: for the output of a kernel or
//                                      a copy that is known to be done, although this kernel has not waited for it
//   load_flag(p)                       *p, uint32_t in host memory, with acquire order: later reads see what the host wrote before it
//   set_flag(p, x)                     *p = x in host memory, with release order: the host sees this thread's earlier writes first
//   load_from_host(p)                  *p as it is in host memory now; a float or four
//   put<scope>(piece, words, turn)     writes a piece (piece.h) by one access of 16 bytes
//   get<scope>(piece, turn, words)     reads a piece in the same way; whether it is that of the turn, whose words are then set
//   bar_start(bar, count)              makes an mbarrier of 8 bytes in shared memory, whose phases end with `count` arrivals; one thread,
//                                      before a sync()
//   bar_expect(bar, bytes)             one arrival; the phase also waits for this number of bytes of bulk copies
//   bar_arrive(bar)                    one arrival
//   bar_wait(bar, parity)              returns once the phase of that parity has ended: 0 the first one, 1 the one after it or the one
//                                      before the first
//   bar_frees(bar, place, bytes)       for emulations: nobody reads that memory any more when a phase of the barrier has ended;
//                                      one thread, before a sync()
//   copy_bulk(to, from, bytes, bar)    starts a copy from global to shared memory whose bytes count at the barrier; one thread; all
//                                      multiples of 16
//   fence_for_host()                   orders this thread's earlier writes, and those that it knows of by a barrier, before its later
//                                      ones, as the host sees them
//   nap(n)                             waits about n nanoseconds
//   nanoseconds()                      the time on a clock of this kernel
//   fence()                            orders this thread's earlier reads and writes before its later ones, for all blocks
//
// Barriers with bytes and bulk copies exist from sm_90 on. T::k_has_bulk_copies says whether T has them, so that a kernel's code for
// older generations can be left out.
//
// Every thread of a warp must call the functions of a warp.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define MINIM_DEVICE __device__ __forceinline__
#define MINIM_DEVICE_LOOP _Pragma("unroll 1")       // a loop that is not unrolled
#define MINIM_DEVICE_UNROLLED _Pragma("unroll")     // a loop that is unrolled, whatever its size
#define MINIM_DEVICE_LOOP_BY_2 _Pragma("unroll 2")  // a loop that is unrolled twice
#else
#define MINIM_DEVICE inline
#define MINIM_DEVICE_LOOP
#define MINIM_DEVICE_UNROLLED
#define MINIM_DEVICE_LOOP_BY_2
#endif

namespace minim::cuda::fast {

// A cudaStream_t; the emulation needs none.
using Stream = void*;

// An mbarrier.
using Bar = uint64_t;

// The shared memory that every generation from 8.0 on can give a block.
inline constexpr int k_max_shared_bytes = 99 * 1024;

template <class Kernel>
inline constexpr bool k_starts_early = requires {
    Kernel::k_starts_early;
};
// For emulations: such a kernel does not end before another thread of the program has done its part.
template <class Kernel>
inline constexpr bool k_waits_for_host = requires {
    Kernel::k_waits_for_host;
};
template <class Kernel>
inline constexpr bool k_holds_next = requires {
    Kernel::k_holds_next;
};
// The most shared memory that a block of the kernel asks for: k_shared_bytes, if it needs more than every generation gives.
template <class Kernel>
inline constexpr int k_shared_bytes_wanted = [] {
    if constexpr (requires { Kernel::k_shared_bytes; }) {
        return Kernel::k_shared_bytes;
    } else {
        return k_max_shared_bytes;
    }
}();
// All blocks of the grid must be on the device at once: one for each multiprocessor, of kernels that take all of its shared memory.
template <class Kernel>
inline constexpr bool k_runs_together = requires {
    Kernel::k_runs_together;
};
// A kernel with k_min_blocks uses few enough registers for that number of blocks on a multiprocessor, which has 65,536.
template <class Kernel>
inline constexpr int k_blocks_wanted = [] {
    if constexpr (requires { Kernel::k_min_blocks; }) {
        return Kernel::k_min_blocks;
    } else {
        return 1;
    }
}();

// Prefetches `bytes` for all n_threads of a block together: a warp takes a piece at a time.
template <class T>
MINIM_DEVICE void prefetch_together(T& t, int n_threads, const void* from, int64_t bytes) {
    constexpr int k_piece = 8192;
    if (t.index() % 32 != 0) return;
    const auto* first = static_cast<const uint8_t*>(from);
    MINIM_DEVICE_LOOP
    for (int64_t at = int64_t{t.index()} / 32 * k_piece; at < bytes; at += n_threads / 32 * k_piece)
        t.prefetch(first + at, bytes - at < k_piece ? static_cast<int>(bytes - at) : k_piece);
}

// How a kernel is started, with kernel.k_threads threads per block.
struct Grid {
    int64_t n_blocks = 0;
    int64_t n_blocks_y = 1;
    int64_t shared_bytes = 0;
};

// Tells the compiler that p, in a matrix aligned to 256 bytes, is a multiple of `bytes`: a copy from there becomes one load
// instead of a load for each byte.
template <int bytes>
MINIM_DEVICE const uint8_t* aligned(const uint8_t* p) {
    return static_cast<const uint8_t*>(__builtin_assume_aligned(p, bytes));
}

// The data of one load of a lane.
struct alignas(16) SixteenBytes {
    uint32_t word[4];
};
struct alignas(8) TwoFloats {
    float x[2];
};
struct alignas(16) FourFloats {
    float x[4];
};

// The sum over a warp's lanes, always in the same order.
template <class T>
MINIM_DEVICE float sum_of_lanes(T& t, float x) {
    for (int mask = 16; mask > 0; mask /= 2) x += t.from_lane_xor(x, mask);
    return x;
}

}  // namespace minim::cuda::fast
