// SPDX-License-Identifier: Apache-2.0
// Memory, and what kernels, blocks and the host pass to each other. Waits for other blocks and for the host end after two
// seconds, with an error.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "gpu/probe/probe.h"

namespace minim::probe {
namespace {

constexpr int k_threads = 608;  // 16 consumer warps, a loader, a storer and a chooser
[[maybe_unused]] constexpr int k_consumers = 16;
constexpr uint64_t k_patience = 2'000'000'000;  // nanoseconds

__device__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__device__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// ---- barriers of shared memory, and bulk copies, from sm_90 on ----
#if __CUDA_ARCH__ >= 900
__device__ void bar_start(uint64_t* bar, uint32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
}
__device__ void bar_expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes)
                 : "memory");
}
__device__ void bar_arrive(uint64_t* bar) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}
__device__ void bar_wait(uint64_t* bar, uint32_t parity) {
    uint32_t is_done = 0;
    while (is_done == 0)
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(is_done)
            : "r"(shared_address(bar)), "r"(parity)
            : "memory");
}
__device__ void copy_bulk(void* to, const void* from, uint32_t bytes, uint64_t* bar) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(bar))
        : "memory");
}
#endif

// A block reads its part of the memory, slot by slot. With `consumes`, 16 warps wait for each slot and give it back; else the loader
// does it.
template <bool consumes>
__global__ void __launch_bounds__(k_threads, 1)
    read_slots([[maybe_unused]] const std::byte* from, [[maybe_unused]] int64_t slots_a_block,
               [[maybe_unused]] int slot_bytes, [[maybe_unused]] int n_slots) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) std::byte ring[];
    __shared__ uint64_t full[32];
    __shared__ uint64_t empty[32];
    if (threadIdx.x == 0) {
        for (int s = 0; s < n_slots; ++s) {
            bar_start(&full[s], 1);
            bar_start(&empty[s], consumes ? k_consumers : 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const auto warp = static_cast<int>(threadIdx.x) / 32;
    const bool is_first_lane = threadIdx.x % 32 == 0;
    if (warp == k_consumers && is_first_lane) {
        const std::byte* own = from + blockIdx.x * slots_a_block * slot_bytes;
        for (int64_t i = 0; i < slots_a_block; ++i) {
            const auto s = static_cast<int>(i % n_slots);
            const auto turn = static_cast<uint32_t>(i / n_slots);
            if (turn > 0) bar_wait(&empty[s], (turn - 1) % 2);
            bar_expect(&full[s], static_cast<uint32_t>(slot_bytes));
            copy_bulk(ring + int64_t{s} * slot_bytes, own + i * slot_bytes, static_cast<uint32_t>(slot_bytes),
                      &full[s]);
        }
    } else if (warp < (consumes ? k_consumers : 1)) {
        for (int64_t i = 0; i < slots_a_block; ++i) {
            const auto s = static_cast<int>(i % n_slots);
            bar_wait(&full[s], static_cast<uint32_t>(i / n_slots) % 2);
            __syncwarp();
            if (is_first_lane) bar_arrive(&empty[s]);
        }
    }
    __syncthreads();
#endif
}

template <bool consumes>
void probe_slots(const Device& device, int slot_bytes, const char* what, double expected_part) {
    constexpr int64_t k_bytes = int64_t{2} << 30;
    const int n_slots = (device.max_shared_bytes - 2048) / slot_bytes < 32
                            ? (device.max_shared_bytes - 2048) / slot_bytes
                            : 32;
    const int64_t slots_a_block = k_bytes / device.n_multiprocessors / slot_bytes;
    const Memory<std::byte> memory(slots_a_block * slot_bytes * device.n_multiprocessors);
    const int shared_bytes = n_slots * slot_bytes;
    check(
        cudaFuncSetAttribute(read_slots<consumes>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "shared memory of the probe");
    const double seconds = seconds_of([&](cudaStream_t stream) {
        read_slots<consumes>
            <<<static_cast<unsigned>(device.n_multiprocessors), k_threads, static_cast<size_t>(shared_bytes),
               stream>>>(memory.data(), slots_a_block, slot_bytes, n_slots);
        check(cudaGetLastError(), "a kernel of the probe");
    });
    const auto bytes = static_cast<double>(slots_a_block * slot_bytes * device.n_multiprocessors);
    report(what, bytes / seconds / device.bytes_per_second, "of nominal", expected_part, Better::larger);
}

// ---- boards: pieces of 12 bytes and the turn in which they were written ----
struct alignas(16) Piece {
    uint32_t word[3];
    uint32_t turn;
};

__device__ void put(Piece* to, const Piece& piece) {
    asm volatile(
        "{ .reg .b128 q; .reg .b64 l, h; mov.b64 l, {%1, %2}; mov.b64 h, {%3, %4}; mov.b128 q, {l, h};"
        "st.relaxed.gpu.global.b128 [%0], q; }" ::"l"(to),
        "r"(piece.word[0]), "r"(piece.word[1]), "r"(piece.word[2]), "r"(piece.turn)
        : "memory");
}
__device__ Piece get(const Piece* from) {
    Piece piece;
    asm volatile(
        "{ .reg .b128 q; .reg .b64 l, h; ld.relaxed.gpu.global.b128 q, [%4]; mov.b128 {l, h}, q;"
        "mov.b64 {%0, %1}, l; mov.b64 {%2, %3}, h; }"
        : "=r"(piece.word[0]), "=r"(piece.word[1]), "=r"(piece.word[2]), "=r"(piece.turn)
        : "l"(from)
        : "memory");
    return piece;
}
// The same in memory that the host sees.
__device__ Piece get_of_host(const Piece* from) {
    Piece piece;
    asm volatile(
        "{ .reg .b128 q; .reg .b64 l, h; ld.relaxed.sys.global.b128 q, [%4]; mov.b128 {l, h}, q;"
        "mov.b64 {%0, %1}, l; mov.b64 {%2, %3}, h; }"
        : "=r"(piece.word[0]), "=r"(piece.word[1]), "=r"(piece.word[2]), "=r"(piece.turn)
        : "l"(from)
        : "memory");
    return piece;
}

constexpr int k_pieces = 96 * 11;  // a row of 96 pairs of panels

// Waits for a piece of this turn. Returns false, and sets `stuck`, if it does not come.
__device__ bool await_piece(const Piece* from, uint32_t turn, uint32_t* stuck, Piece& piece) {
    const uint64_t start = nanoseconds();
    for (piece = get(from); piece.turn != turn; piece = get(from)) {
        if (nanoseconds() - start > k_patience) {
            *stuck = 1;
            return false;
        }
    }
    return true;
}

// Each block writes its part of a board, and reads all of it, `turns` times. Two boards in turn: who writes the turn after the next
// one has read this one. With `norms`, a block also adds the squares of all numbers.
template <bool norms>
__global__ void __launch_bounds__(k_threads, 1)
    pass_pieces(Piece* boards, int turns, uint32_t first_turn, uint32_t* stuck, float* out) {
    __shared__ float sums[k_threads / 32];
    float value = 1.0F;
    for (int i = 0; i < turns; ++i) {
        const uint32_t turn = first_turn + static_cast<uint32_t>(i);
        Piece* board = boards + turn % 2 * k_pieces;
        const int own = (k_pieces + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
        const auto at = static_cast<int>(blockIdx.x) * own + static_cast<int>(threadIdx.x);
        const uint32_t bits = __float_as_uint(value);
        if (static_cast<int>(threadIdx.x) < own && at < k_pieces) put(board + at, {{bits, bits, bits}, turn});
        float sum = 0.0F;
        for (int p = static_cast<int>(threadIdx.x); p < k_pieces; p += k_threads) {
            Piece piece;
            if (!await_piece(board + p, turn, stuck, piece)) return;
            for (const uint32_t word : piece.word) sum += __uint_as_float(word) * __uint_as_float(word);
        }
        if constexpr (norms) {
            for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, mask);
            if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
            __syncthreads();
            float total = 0.0F;
            for (const float of_warp : sums) total += of_warp;
            value = rsqrtf(total / (3.0F * k_pieces) + 1e-6F);
            __syncthreads();
        } else {
            value = sum > 0.0F ? 1.0F : 2.0F;
            __syncthreads();
        }
    }
    if (threadIdx.x == 0) out[blockIdx.x] = value;
}

// The same by a counter: data, fence, arrival; then all blocks wait for the arrivals of all.
__global__ void __launch_bounds__(k_threads, 1)
    pass_by_counter(Piece* boards, int turns, uint32_t first_arrival, uint32_t* arrived, uint32_t* stuck,
                    float* out) {
    float value = 1.0F;
    for (int i = 0; i < turns; ++i) {
        Piece* board = boards + i % 2 * k_pieces;
        const int own = (k_pieces + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
        const auto at = static_cast<int>(blockIdx.x) * own + static_cast<int>(threadIdx.x);
        const uint32_t bits = __float_as_uint(value);
        if (static_cast<int>(threadIdx.x) < own && at < k_pieces) board[at] = {{bits, bits, bits}, 0};
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(arrived, 1U);
            const uint32_t all = first_arrival + static_cast<uint32_t>(i + 1) * gridDim.x;
            const uint64_t start = nanoseconds();
            while (static_cast<int32_t>(*static_cast<volatile uint32_t*>(arrived) - all) < 0) {
                if (nanoseconds() - start > k_patience) {
                    *stuck = 1;
                    break;
                }
            }
            __threadfence();
        }
        __syncthreads();
        float sum = 0.0F;
        for (int p = static_cast<int>(threadIdx.x); p < k_pieces; p += k_threads) {
            const uint4 words = __ldcg(reinterpret_cast<const uint4*>(board + p));
            sum += __uint_as_float(words.x);
        }
        value = sum > 0.0F ? 1.0F : 2.0F;
    }
    if (threadIdx.x == 0) out[blockIdx.x] = value;
}

void refuse_stuck(const Memory<uint32_t>& stuck, const char* what) {
    uint32_t is_stuck = 0;
    check(cudaMemcpy(&is_stuck, stuck.data(), sizeof(is_stuck), cudaMemcpyDeviceToHost), "a copy");
    if (is_stuck != 0)
        throw std::runtime_error(std::string(what) + ": what was waited for did not come in 2 s");
}

// ---- borders ----
template <bool is_early>
__global__ void __launch_bounds__(k_threads, 1) do_nothing(float* out) {
#if __CUDA_ARCH__ >= 900
    if constexpr (is_early) {
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
        asm volatile("griddepcontrol.wait;" ::: "memory");
    }
#endif
    if (threadIdx.x == 0) out[blockIdx.x] += 1.0F;
}

template <bool is_early>
double seconds_of_border(const Device& device) {
    constexpr int k_kernels = 100;
    const Memory<float> out(device.n_multiprocessors);
    const int shared_bytes = device.max_shared_bytes - 5 * 1024;
    check(
        cudaFuncSetAttribute(do_nothing<is_early>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "shared memory of the probe");
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(device.n_multiprocessors));
    config.blockDim = dim3(k_threads);
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.attrs = &early;
    config.numAttrs = is_early ? 1 : 0;
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t record = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "a record");
    config.stream = stream;
    for (int i = 0; i < k_kernels; ++i)
        check(cudaLaunchKernelEx(&config, do_nothing<is_early>, out.data()), "a kernel");
    check(cudaStreamEndCapture(stream, &graph), "a record");
    check(cudaGraphInstantiate(&record, graph, 0), "a record");
    const double seconds =
        seconds_of([&](cudaStream_t other) { check(cudaGraphLaunch(record, other), "a record"); });
    cudaGraphExecDestroy(record);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    return seconds / k_kernels;
}

// ---- the host ----
constexpr int k_round_trips = 2000;
constexpr int k_row = 3072;  // floats

struct alignas(128) Flag {
    uint32_t value;
};
// Memory of the host, for both sides.
struct Mailbox {
    Flag to_host;
    Flag to_device;
    Flag stuck;
    alignas(128) float h[k_row];
    alignas(128) Piece answer[k_row / 3];
};

__device__ uint32_t load_flag(const uint32_t* p) {
    uint32_t x;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}
__device__ void set_flag(uint32_t* p, uint32_t x) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

enum class Trip : uint8_t { flag, row_and_flag, pieces };

// Each turn goes to the host by a flag, in two cases behind a row, and comes back by a flag or by pieces.
template <Trip trip>
__global__ void __launch_bounds__(256, 1) meet_host(Mailbox* mailbox) {
    const uint64_t start = nanoseconds();
    __shared__ int is_stuck;
    if (threadIdx.x == 0) is_stuck = 0;
    __syncthreads();
    for (uint32_t turn = 1; turn <= k_round_trips; ++turn) {
        if constexpr (trip == Trip::row_and_flag) {
            for (int i = static_cast<int>(threadIdx.x); i < k_row / 4; i += 256)
                reinterpret_cast<float4*>(mailbox->h)[i] = make_float4(1.0F, 2.0F, 3.0F, 4.0F);
            __syncthreads();
        }
        if (threadIdx.x == 0) set_flag(&mailbox->to_host.value, turn);
        if constexpr (trip == Trip::pieces) {
            for (int i = static_cast<int>(threadIdx.x); i < k_row / 3; i += 256) {
                while (get_of_host(mailbox->answer + i).turn != turn && is_stuck == 0)
                    if (nanoseconds() - start > k_patience) is_stuck = 1;
            }
        } else if (threadIdx.x == 0) {
            while (load_flag(&mailbox->to_device.value) != turn && is_stuck == 0)
                if (nanoseconds() - start > k_patience) is_stuck = 1;
        }
        __syncthreads();
        if (is_stuck != 0) {
            if (threadIdx.x == 0) set_flag(&mailbox->stuck.value, 1);
            return;
        }
    }
}

uint32_t seen(uint32_t& flag) {
    return std::atomic_ref(flag).load(std::memory_order_acquire);
}

// Answers all turns. Pieces are written as 16 bytes each.
void answer_all(Mailbox& mailbox, Trip trip) {
    using Bytes = uint32_t __attribute__((vector_size(16)));
    for (uint32_t turn = 1; turn <= k_round_trips; ++turn) {
        while (seen(mailbox.to_host.value) != turn)
            if (seen(mailbox.stuck.value) != 0) return;
        if (trip == Trip::pieces) {
            for (Piece& piece : mailbox.answer)
                *reinterpret_cast<volatile Bytes*>(&piece) = Bytes{turn, turn, turn, turn};
        } else {
            std::atomic_ref(mailbox.to_device.value).store(turn, std::memory_order_release);
        }
    }
}

template <Trip trip>
void probe_trip(const char* what, double expected) {
    const Memory<Mailbox> memory(1, true);
    Mailbox& mailbox = *memory.data();
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    const auto begin = std::chrono::steady_clock::now();
    meet_host<trip><<<1, 256, 0, stream>>>(&mailbox);
    check(cudaGetLastError(), "a kernel of the probe");
    answer_all(mailbox, trip);
    check(cudaStreamSynchronize(stream), "a kernel of the probe");
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    cudaStreamDestroy(stream);
    if (seen(mailbox.stuck.value) != 0)
        throw std::runtime_error(std::string(what) + ": the kernel waited in vain");
    report(what, seconds.count() / k_round_trips * 1e6, "us", expected, Better::smaller);
}

}  // namespace

void probe_reading(const Device& device) {
    if (!device.has_bulk_copies()) return leave_out("bulk copies", "they exist from sm_90 on");
    probe_slots<false>(device, 9344, "bulk copies, slots of 9 KB", 0.93);
    probe_slots<false>(device, 18560, "bulk copies, slots of 18 KB", 0.93);
    probe_slots<true>(device, 9344, "the same with 16 warps that wait, 9 KB", 0.93);
    probe_slots<true>(device, 18560, "the same with 16 warps that wait, 18 KB", 0.93);
}

void probe_boards(const Device& device) {
    constexpr int k_turns = 1000;
    const Memory<Piece> boards(2 * k_pieces);
    const Memory<uint32_t> words(2);  // stuck, arrived
    const Memory<float> out(device.n_multiprocessors);
    const auto n_blocks = static_cast<unsigned>(device.n_multiprocessors);
    uint32_t turn = 1;
    const auto us_of_turn = [&](auto kernel) {
        const double seconds = seconds_of([&](cudaStream_t stream) {
            kernel<<<n_blocks, k_threads, 0, stream>>>(boards.data(), k_turns, turn, words.data(),
                                                       out.data());
            check(cudaGetLastError(), "a kernel of the probe");
            turn += k_turns;
        });
        refuse_stuck(words, "pieces");
        return seconds / k_turns * 1e6;
    };
    report("1,056 pieces to all blocks", us_of_turn(pass_pieces<false>), "us", 0.8, Better::smaller);
    report("the same and a norm", us_of_turn(pass_pieces<true>), "us", 1.6, Better::smaller);
    uint32_t arrivals = 0;
    const double seconds = seconds_of([&](cudaStream_t stream) {
        pass_by_counter<<<n_blocks, k_threads, 0, stream>>>(boards.data(), k_turns, arrivals,
                                                            words.data() + 1, words.data(), out.data());
        check(cudaGetLastError(), "a kernel of the probe");
        arrivals += k_turns * n_blocks;
    });
    refuse_stuck(words, "a counter");
    report("the same data by a counter with fences", seconds / k_turns * 1e6, "us", 2.2, Better::smaller);
}

void probe_borders(const Device& device) {
    if (device.capability >= 90)
        report("a border between kernels, early", seconds_of_border<true>(device) * 1e6, "us", 1.3,
               Better::smaller);
    report("a border between kernels", seconds_of_border<false>(device) * 1e6, "us", 2.2, Better::smaller);
}

void probe_host(const Device&) {
    probe_trip<Trip::flag>("round trip to the host: a flag", 2.5);
    probe_trip<Trip::row_and_flag>("round trip to the host: 12 KB and a flag", 4.5);
    probe_trip<Trip::pieces>("round trip to the host: a flag, and 12 KB of pieces", 2.5);
}

}  // namespace minim::probe
