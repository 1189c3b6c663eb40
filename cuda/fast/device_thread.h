// SPDX-License-Identifier: Apache-2.0
// The threads of a GPU (device.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <typeinfo>

#include "cuda/debug.h"
#include "cuda/fast/device.h"
#include "cuda/fast/multiply_rows.h"
#include "cuda/fast/piece.h"
#include "cuda/launch.h"
#include "format/e4m3.h"

namespace minim::cuda::fast {

extern __shared__ __align__(128) std::byte shared_memory_of_block[];

struct DeviceThread {
    static constexpr unsigned k_all = 0xFFFFFFFFU;

    MINIM_DEVICE int index() const { return static_cast<int>(threadIdx.x); }
    MINIM_DEVICE int block() const { return static_cast<int>(blockIdx.x); }
    MINIM_DEVICE int block_y() const { return static_cast<int>(blockIdx.y); }
    MINIM_DEVICE std::byte* shared() const { return shared_memory_of_block; }
    MINIM_DEVICE void sync() const { __syncthreads(); }
    // PTX requires that the threads of a warp execute the same bar.sync, but not that the threads of a block do.
    // synccheck requires the latter and reports this one. With barrier.cta.sync, which synccheck accepts, experts of
    // IQ2_S took up to 12 % longer (H100).
    template <int n_threads>
    MINIM_DEVICE void sync_stages() const {
        asm volatile("bar.sync 1, %0;" ::"n"(n_threads) : "memory");
    }
    MINIM_DEVICE void sync_warp() const { __syncwarp(); }
    template <typename Number>
    MINIM_DEVICE Number from_lane_xor(Number x, int mask) const {
        return __shfl_xor_sync(k_all, x, mask);
    }

    MINIM_DEVICE float from_lane(float x, int lane) const { return __shfl_sync(k_all, x, lane); }
    MINIM_DEVICE uint32_t largest_of_lanes(uint32_t x) const { return __reduce_max_sync(k_all, x); }

    MINIM_DEVICE void copy_16(void* to, const void* from) const {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
                     : "memory");
    }
    MINIM_DEVICE void copy_4(void* to, const void* from) const {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from)
                     : "memory");
    }
    MINIM_DEVICE void copy_16_if(bool wanted, void* to, const void* from) const {
        asm volatile(
            "{ .reg .pred p; setp.ne.b32 p, %2, 0;\n@p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(
                shared_address(to)),
            "l"(from), "r"(static_cast<int>(wanted))
            : "memory");
    }
    MINIM_DEVICE void copies_end_group() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
    template <int n>
    MINIM_DEVICE void copies_wait() const {
        asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
    }

    MINIM_DEVICE void mma_s8(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    MINIM_DEVICE void mma_s8_16(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) const {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a0), "r"(a1), "r"(b));
    }
    MINIM_DEVICE void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    MINIM_DEVICE void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    MINIM_DEVICE void load_matrices(uint32_t (&r)[4], const void* row) const {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_address(row))
                     : "memory");
    }
    MINIM_DEVICE void load_transposed(uint32_t (&r)[4], const void* row) const {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_address(row))
                     : "memory");
    }
    MINIM_DEVICE uint32_t pack_f16(float a, float b) const {
        uint32_t both;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(b), "f"(a));
        return both;
    }
    MINIM_DEVICE uint32_t subtract_f16(uint32_t a, uint32_t b) const {
        uint32_t both;
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
        return both;
    }
    MINIM_DEVICE uint32_t multiply_f16(uint32_t a, uint32_t b) const {
        uint32_t both;
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
        return both;
    }
    MINIM_DEVICE uint32_t fma_f16(uint32_t a, uint32_t b, uint32_t c) const {
        uint32_t both;
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(both) : "r"(a), "r"(b), "r"(c));
        return both;
    }
    template <int n_inputs, Format halves = Format::f16, int n_panels, int n_steps>
    MINIM_DEVICE void multiply_rows(float (&sum)[n_panels][n_inputs / 8][4],
                                    const uint32_t (&a)[n_panels][n_steps][4], const std::byte* b,
                                    int count) const {
        multiply_rows_by_mma<n_inputs, halves>(*this, sum, a, b, count);
    }
    template <int n_inputs, int n_panels, int n_steps>
    MINIM_DEVICE void multiply_scaled_rows(float (&sum)[n_panels][n_inputs / 8][4],
                                           const uint32_t (&a)[n_panels][n_steps][4],
                                           const float (&scale)[n_panels][2], const std::byte* b,
                                           int count) const {
        multiply_scaled_rows_by_mma<n_inputs>(*this, sum, a, scale, b, count);
    }
    MINIM_DEVICE void halves_of_e4m3(uint32_t (&r)[2], uint32_t codes) const {
#if __CUDA_ARCH__ >= 890
        const uint32_t ordered = __byte_perm(codes, 0, 0x3120);
        for (int i = 0; i < 2; ++i)
            asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r[i]) : "h"(static_cast<uint16_t>(ordered >> (16 * i))));
#else
        constexpr uint32_t k_256 = 0x5C005C00U;
        r[0] = multiply_f16(e4m3_as_halves_even(codes), k_256);
        r[1] = multiply_f16(e4m3_as_halves_odd(codes), k_256);
#endif
    }
    MINIM_DEVICE float exp2(float x) const {
        float y;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
    }
    MINIM_DEVICE int32_t add_to(int32_t* p, int32_t x) const {
        return atomicAdd(p, x);
    }
    template <class X>
    MINIM_DEVICE X load_fresh(const X* p) const {
        return __ldcg(p);
    }
    MINIM_DEVICE uint32_t load_flag(const uint32_t* p) const {
        uint32_t x;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
        return x;
    }
    MINIM_DEVICE void set_flag(uint32_t* p, uint32_t x) const {
        __threadfence_system();
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
    }
    MINIM_DEVICE float load_from_host(const float* p) const {
        return __ldcv(p);
    }
    MINIM_DEVICE FourFloats load_from_host(const FourFloats* p) const {
        const float4 x = __ldcv(reinterpret_cast<const float4*>(p));
        return {{x.x, x.y, x.z, x.w}};
    }
    template <Scope scope>
    MINIM_DEVICE void put(Piece* piece, const uint32_t (&words)[k_piece_words], uint32_t turn) const {
        const uint64_t low = words[0] | uint64_t{words[1]} << 32;
        const uint64_t high = words[2] | uint64_t{turn} << 32;
        if constexpr (scope == Scope::device) {
            asm volatile(
                "{ .reg .b128 p; mov.b128 p, {%1, %2}; st.relaxed.gpu.global.b128 [%0], p; }" ::"l"(piece),
                "l"(low), "l"(high)
                : "memory");
        } else {
            asm volatile(
                "{ .reg .b128 p; mov.b128 p, {%1, %2}; st.relaxed.sys.global.b128 [%0], p; }" ::"l"(piece),
                "l"(low), "l"(high)
                : "memory");
        }
    }
    template <Scope scope>
    MINIM_DEVICE bool get(const Piece* piece, uint32_t turn, uint32_t (&words)[k_piece_words]) const {
        uint64_t low;
        uint64_t high;
        if constexpr (scope == Scope::device) {
            asm volatile("{ .reg .b128 p; ld.relaxed.gpu.global.b128 p, [%2]; mov.b128 {%0, %1}, p; }"
                         : "=l"(low), "=l"(high)
                         : "l"(piece)
                         : "memory");
        } else {
            asm volatile("{ .reg .b128 p; ld.relaxed.sys.global.b128 p, [%2]; mov.b128 {%0, %1}, p; }"
                         : "=l"(low), "=l"(high)
                         : "l"(piece)
                         : "memory");
        }
        if (static_cast<uint32_t>(high >> 32) != turn) return false;
        words[0] = static_cast<uint32_t>(low);
        words[1] = static_cast<uint32_t>(low >> 32);
        words[2] = static_cast<uint32_t>(high);
        return true;
    }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    static constexpr bool k_has_bulk_copies = true;
    MINIM_DEVICE void bar_start(Bar* bar, int count) const {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count)
                     : "memory");
        // Copies complete at the barrier through a proxy of their own.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    MINIM_DEVICE void bar_expect(Bar* bar, int bytes) const {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)),
                     "r"(bytes)
                     : "memory");
    }
    MINIM_DEVICE void bar_arrive(Bar* bar) const {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
    }
    MINIM_DEVICE void bar_wait(Bar* bar, uint32_t parity) const {
        uint32_t has_ended = 0;
        while (has_ended == 0) {
            asm volatile(
                "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; "
                "}"
                : "=r"(has_ended)
                : "r"(shared_address(bar)), "r"(parity)
                : "memory");
        }
    }
    MINIM_DEVICE void copy_bulk(void* to, const void* from, int bytes, Bar* bar) const {
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                shared_address(to)),
            "l"(from), "r"(bytes), "r"(shared_address(bar))
            : "memory");
    }
#else
    static constexpr bool k_has_bulk_copies = false;
#endif
    MINIM_DEVICE void bar_frees(Bar*, void*, int) const {}
    MINIM_DEVICE void fence_for_host() const {
        asm volatile("fence.acq_rel.sys;" ::: "memory");
    }
    MINIM_DEVICE void nap(int n) const {
        __nanosleep(static_cast<unsigned>(n));
    }
    MINIM_DEVICE uint64_t nanoseconds() const {
        uint64_t now;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        return now;
    }
    MINIM_DEVICE void fence() const {
        __threadfence();
    }
    // Programmatic dependent launch; before sm_90 a kernel begins when those ahead of it are done.
    MINIM_DEVICE void wait_for_inputs() const {
#if __CUDA_ARCH__ >= 900
        asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    }
    MINIM_DEVICE void let_next_begin() const {
#if __CUDA_ARCH__ >= 900
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    }
    MINIM_DEVICE void prefetch([[maybe_unused]] const void* p, [[maybe_unused]] int bytes) const {
#if __CUDA_ARCH__ >= 900
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#endif
    }

  private:
    MINIM_DEVICE static uint32_t shared_address(const void* p) {
        return static_cast<uint32_t>(__cvta_generic_to_shared(p));
    }
};

// Every kernel waits for the one ahead of it, so that when a kernel is done all earlier ones are. The next kernel takes
// no room from this one: it begins when all blocks of this one have begun.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::k_threads, k_blocks_wanted<Kernel>)
    run(const __grid_constant__ Kernel kernel) {
    DeviceThread thread;
    if constexpr (!k_holds_next<Kernel>) thread.let_next_begin();
    if constexpr (!k_starts_early<Kernel>) thread.wait_for_inputs();
    kernel(thread);
}

// Facts about a kernel's function, asked for once on each device.
struct FunctionState {
    std::atomic<uint64_t> is_known = 0;   // a bit per device
    std::atomic<uint64_t> may_begin = 0;  // before the kernels ahead of it are done
};

template <class Kernel>
bool may_begin_early(int device) {
    static FunctionState state;
    const uint64_t bit = uint64_t{1} << (device % 64);
    if ((state.is_known & bit) == 0) {
        // More than 48 KB must be requested. If this fails, the launch reports an error.
        int most = 0;
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        cudaFuncSetAttribute(run<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             k_shared_bytes_wanted<Kernel> < most ? k_shared_bytes_wanted<Kernel> : most);
        // A multiprocessor changes the split of its cache only when it is idle: a kernel that begins early would wait for the one
        // ahead if their splits differed.
        cudaFuncSetAttribute(run<Kernel>, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared);
        // Kernels translated from PTX of an older generation do not wait for their inputs.
        cudaFuncAttributes attributes = {};
        if (cudaFuncGetAttributes(&attributes, run<Kernel>) == cudaSuccess && attributes.ptxVersion >= 90)
            state.may_begin |= bit;
        state.is_known |= bit;
    }
    return (state.may_begin & bit) != 0;
}

// Returns whether all blocks of the grid can be on the current device at once: there are as many multiprocessors, and one has room for
// a block, also under a tool that adds instructions to the kernel.
template <class Kernel>
bool runs_together(const Grid& grid) {
    int device = 0;
    int n_processors = 0;
    int n_blocks = 0;
    cudaGetDevice(&device);
    may_begin_early<Kernel>(device);  // sets the most shared memory
    cudaDeviceGetAttribute(&n_processors, cudaDevAttrMultiProcessorCount, device);
    const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &n_blocks, run<Kernel>, Kernel::k_threads, static_cast<size_t>(grid.shared_bytes));
    return error == cudaSuccess && n_blocks > 0 && grid.n_blocks * grid.n_blocks_y <= n_processors;
}

// Launches a kernel on a GPU.
template <class Kernel>
void launch(Stream stream, const Grid& grid, const Kernel& kernel) {
    if (grid.n_blocks == 0 || grid.n_blocks_y == 0) return;
    int device = 0;
    cudaGetDevice(&device);
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(grid.n_blocks), static_cast<unsigned>(grid.n_blocks_y));
    config.blockDim = dim3(Kernel::k_threads);
    config.dynamicSmemBytes = static_cast<size_t>(grid.shared_bytes);
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &early;
    config.numAttrs = may_begin_early<Kernel>(device) && runtime::starts_early() ? 1 : 0;
    // The stream's owner finds errors: it asks for the last one.
    if (cudaLaunchKernelEx(&config, run<Kernel>, kernel) != cudaSuccess || debug_switches().sync)
        runtime::check_launch(stream, typeid(Kernel).name());
}

}  // namespace minim::cuda::fast
