// SPDX-License-Identifier: Apache-2.0
// Memory, and what kernels, blocks and the host pass to each other, by the operations of the kernels themselves. Waits for other blocks
// and for the host end after two seconds, with an error.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "cuda/fast/device_thread.h"
#include "cuda/fast/ring.h"
#include "cuda/host_piece.h"
#include "gpu/probe/probe.h"

namespace minim::probe {
namespace {

using namespace cuda::fast;

constexpr int k_threads = 608;  // 16 consumer warps, a loader, a storer and a chooser
constexpr int k_consumers = 16;
constexpr uint64_t k_patience = 2'000'000'000;  // nanoseconds

// ---- bulk copies into the ring of the stream kernels, from sm_90 on ----
struct SlotReads {
    const std::byte* from;
    int64_t slots_a_block;
    int panel_bytes;  // a slot has two
    int n_slots;
    int n_consumers;  // warps that wait for each slot and give it back
};

constexpr int k_max_slots = 32;

// A block reads its part of the memory, slot by slot.
template <class T>
__device__ void read_slots(T& t, const SlotReads& reads) {
    if constexpr (T::k_has_bulk_copies) {
        __shared__ Bar full[k_max_slots];
        __shared__ Bar empty[k_max_slots];
        const int bytes = 2 * reads.panel_bytes;
        const Ring ring = {t.shared(), full, empty, reads.n_slots, ring_slot_bytes(bytes)};
        ring.start(t, reads.n_consumers);
        t.sync();
        RingPosition at;
        if (t.index() == 32 * k_consumers) {
            const std::byte* panel = reads.from + t.block() * reads.slots_a_block * bytes;
            for (int64_t i = 0; i < reads.slots_a_block; ++i) {
                const PanelPart part[2] = {{nullptr, panel}, {nullptr, panel + reads.panel_bytes}};
                ring.template load<0>(t, at, part, reads.panel_bytes);
                at.next(ring.n_slots);
                panel += bytes;
            }
        } else if (t.index() < 32 * reads.n_consumers) {
            for (int64_t i = 0; i < reads.slots_a_block; ++i) {
                ring.wait(t, at);
                ring.release(t, at);
                at.next(ring.n_slots);
            }
        }
        t.sync();
    }
}

__global__ void __launch_bounds__(k_threads, 1) read_slots_of_block(SlotReads reads) {
    DeviceThread t;
    read_slots(t, reads);
}

void probe_slots(const Device& device, int panel_bytes, int n_consumers, const char* what) {
    constexpr int64_t k_bytes = int64_t{2} << 30;
    const int slot_bytes = ring_slot_bytes(2 * panel_bytes);
    SlotReads reads = {};
    reads.slots_a_block = k_bytes / device.n_multiprocessors / (2 * panel_bytes);
    reads.panel_bytes = panel_bytes;
    reads.n_slots = std::min((device.max_shared_bytes - 2048) / slot_bytes, k_max_slots);
    reads.n_consumers = n_consumers;
    const int64_t bytes = reads.slots_a_block * 2 * panel_bytes * device.n_multiprocessors;
    const Memory<std::byte> memory(bytes);
    reads.from = memory.data();
    const int shared_bytes = reads.n_slots * slot_bytes;
    check(
        cudaFuncSetAttribute(read_slots_of_block, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "shared memory of the probe");
    const double seconds = seconds_of([&](cudaStream_t stream) {
        read_slots_of_block<<<static_cast<unsigned>(device.n_multiprocessors), k_threads,
                              static_cast<size_t>(shared_bytes), stream>>>(reads);
        check(cudaGetLastError(), "a kernel of the probe");
    });
    report(what, static_cast<double>(bytes) / seconds / device.bytes_per_second, "of nominal", 0.93,
           Better::larger);
}

// ---- boards: pieces that all blocks write and read ----
constexpr int k_pieces = 96 * 11;  // a row of 96 pairs of panels

// Waits for a piece of this turn. Returns false, and sets `stuck`, if it does not come.
__device__ bool await_piece(const DeviceThread& t, const Piece* from, uint32_t turn, uint32_t* stuck,
                            uint32_t (&words)[k_piece_words]) {
    const uint64_t start = t.nanoseconds();
    while (!t.get<Scope::device>(from, turn, words)) {
        if (t.nanoseconds() - start > k_patience) {
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
    const DeviceThread t;
    float value = 1.0F;
    for (int i = 0; i < turns; ++i) {
        const uint32_t turn = first_turn + static_cast<uint32_t>(i);
        Piece* board = boards + turn % 2 * k_pieces;
        const int own = (k_pieces + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
        const auto at = static_cast<int>(blockIdx.x) * own + static_cast<int>(threadIdx.x);
        const uint32_t bits = __float_as_uint(value);
        if (static_cast<int>(threadIdx.x) < own && at < k_pieces)
            t.put<Scope::device>(board + at, {bits, bits, bits}, turn);
        float sum = 0.0F;
        for (int p = static_cast<int>(threadIdx.x); p < k_pieces; p += k_threads) {
            uint32_t words[k_piece_words];
            if (!await_piece(t, board + p, turn, stuck, words)) return;
            for (const uint32_t word : words) sum += __uint_as_float(word) * __uint_as_float(word);
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
    const DeviceThread t;
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
            const uint64_t start = t.nanoseconds();
            while (static_cast<int32_t>(*static_cast<volatile uint32_t*>(arrived) - all) < 0) {
                if (t.nanoseconds() - start > k_patience) {
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
    const DeviceThread t;
    if constexpr (is_early) {
        t.let_next_begin();
        t.wait_for_inputs();
    }
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
    Piece posted;
    Flag to_device;
    Flag stuck;
    alignas(128) float h[k_row];
    alignas(128) Piece answer[k_row / 3];
};

enum class Trip : uint8_t { flag, row_and_flag, pieces };

// Each turn goes to the host by a flag, in one case behind a row, and comes back by a flag; or by pieces both ways.
template <Trip trip>
__global__ void __launch_bounds__(256, 1) meet_host(Mailbox* mailbox) {
    __shared__ int is_stuck;
    const DeviceThread t;
    const uint64_t start = t.nanoseconds();
    if (threadIdx.x == 0) is_stuck = 0;
    __syncthreads();
    for (uint32_t turn = 1; turn <= k_round_trips; ++turn) {
        if constexpr (trip == Trip::row_and_flag) {
            for (int i = static_cast<int>(threadIdx.x); i < k_row / 4; i += 256)
                reinterpret_cast<float4*>(mailbox->h)[i] = make_float4(1.0F, 2.0F, 3.0F, 4.0F);
            __syncthreads();
        }
        if constexpr (trip == Trip::pieces) {
            if (threadIdx.x == 0) t.put<Scope::system>(&mailbox->posted, {turn, turn, turn}, turn);
            for (int i = static_cast<int>(threadIdx.x); i < k_row / 3; i += 256) {
                uint32_t words[k_piece_words];
                while (!t.get<Scope::system>(mailbox->answer + i, turn, words) && is_stuck == 0)
                    if (t.nanoseconds() - start > k_patience) is_stuck = 1;
            }
        } else if (threadIdx.x == 0) {
            t.set_flag(&mailbox->to_host.value, turn);
            while (t.load_flag(&mailbox->to_device.value) != turn && is_stuck == 0)
                if (t.nanoseconds() - start > k_patience) is_stuck = 1;
        }
        __syncthreads();
        if (is_stuck != 0) {
            if (threadIdx.x == 0) t.set_flag(&mailbox->stuck.value, 1);
            return;
        }
    }
}

uint32_t seen(uint32_t& flag) {
    return std::atomic_ref(flag).load(std::memory_order_acquire);
}

// Answers all turns.
void answer_all(Mailbox& mailbox, Trip trip) {
    const auto is_posted = [&](uint32_t turn) {
        if (trip == Trip::pieces) return cuda::load_piece(&mailbox.posted).turn == turn;
        return seen(mailbox.to_host.value) == turn;
    };
    for (uint32_t turn = 1; turn <= k_round_trips; ++turn) {
        while (!is_posted(turn))
            if (seen(mailbox.stuck.value) != 0) return;
        if (trip == Trip::pieces) {
            for (Piece& piece : mailbox.answer) cuda::store_piece(&piece, {{turn, turn, turn}, turn});
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
    probe_slots(device, 4608, 1, "bulk copies, slots of 9 KB");
    probe_slots(device, 9216, 1, "bulk copies, slots of 18 KB");
    probe_slots(device, 4608, k_consumers, "the same with 16 warps that wait, 9 KB");
    probe_slots(device, 9216, k_consumers, "the same with 16 warps that wait, 18 KB");
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
    probe_trip<Trip::pieces>("round trip to the host: a piece, and 12 KB of pieces", 2.5);
}

}  // namespace minim::probe
