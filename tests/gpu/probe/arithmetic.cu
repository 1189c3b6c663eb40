// SPDX-License-Identifier: Apache-2.0
// Cycles of decoders, of shared memory and of tensor cores. Kernels run on one block a multiprocessor; memory outside of it
// is not used.
#include "cuda/fast/device_thread.h"
#include "cuda/fast/grid_panels.h"
#include "cuda/fast/stream_roles.h"
#include "cuda/fast/table_dots.h"
#include "gpu/probe/probe.h"
#include "panel/blocks_of_32.h"
#include "panel/k_quants.h"
#include "panel/value_tables.h"

namespace minim::probe {
namespace {

using namespace cuda::fast;

constexpr int k_warps = 16;
constexpr int k_threads = 32 * k_warps;

// Fills shared memory with numbers that repeat after more than a slot.
__device__ void fill_shared(std::byte* shared, int bytes) {
    auto* words = reinterpret_cast<uint32_t*>(shared);
    for (int i = static_cast<int>(threadIdx.x); i < bytes / 4; i += k_threads)
        words[i] = static_cast<uint32_t>(i) * 2654435761U ^ 0x3C003C00U;
    __syncthreads();
}

// Writes the cycles that the block has taken since `start`.
__device__ void put_cycles(long long start, long long* cycles) {
    __syncthreads();
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
}

// What the consumers of the stream kernels do with a ring that is always full: warps multiply units of the same few groups over and
// over. A thread has `count` turns.
template <class P>
struct FullSlot {
    using Roles = StreamRoles<P, 1>;
    static constexpr int k_groups = 4;
    static constexpr int k_inputs_at = ring_slot_bytes(2 * k_groups * Roles::k_group_bytes);
    static constexpr int k_table_at =
        k_inputs_at + k_groups * k_stage_units * static_cast<int>(sizeof(Q8Block));
    static constexpr int k_bytes = k_table_at + k_table_bytes<P>;
    static constexpr int k_units_a_turn = k_groups * k_stage_units;  // by all warps
};

template <class P>
__global__ void __launch_bounds__(k_threads, 1) multiply_full_slot(int count, float* out, long long* cycles) {
    using Slot = FullSlot<P>;
    using Roles = typename Slot::Roles;
    DeviceThread t;
    fill_shared(t.shared(), Slot::k_table_at);
    copy_table<P>(t, k_threads, t.shared() + Slot::k_table_at);
    __syncthreads();
    StreamMemory memory = {};
    memory.table_at = Slot::k_table_at;
    const typename Roles::Consumer own = {t.index() / 32, t.index() % 32};
    const auto* inputs = reinterpret_cast<const Q8Block*>(t.shared() + Slot::k_inputs_at) + own.unit();
    float sum[1] = {};
    const long long start = clock64();
    with_unit<P>(own.unit() % Roles::k_block_units, [&](auto block_unit) {
        MINIM_DEVICE_LOOP
        for (int i = 0; i < count; ++i)
            Roles::template multiply_slot<block_unit>(t, memory, own, t.shared(), Slot::k_groups, inputs, 0,
                                                      1, sum);
    });
    put_cycles(start, cycles);
    out[int64_t{t.block()} * k_threads + t.index()] = sum[0];
}

// Returns the largest number of cycles of the blocks.
template <class Kernel, class... Args>
double cycles_of(const Device& device, Kernel kernel, int shared_bytes, const Args&... args) {
    const Memory<long long> cycles(device.n_multiprocessors, true);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
          "shared memory of the probe");
    seconds_of([&](cudaStream_t stream) {
        kernel<<<static_cast<unsigned>(device.n_multiprocessors), k_threads,
                 static_cast<size_t>(shared_bytes), stream>>>(args..., cycles.data());
        check(cudaGetLastError(), "a kernel of the probe");
    });
    long long most = 0;
    for (int i = 0; i < device.n_multiprocessors; ++i) most = std::max(most, cycles.data()[i]);
    return static_cast<double>(most);
}

template <class P>
void probe_decoder(const Device& device, const char* name, double expected) {
    constexpr int k_count = 2000;
    const Memory<float> out(int64_t{device.n_multiprocessors} * k_threads);
    const double cycles = cycles_of(device, multiply_full_slot<P>, FullSlot<P>::k_bytes, k_count, out.data());
    report(std::string("a unit of ") + name + " and one row",
           cycles / (k_count * FullSlot<P>::k_units_a_turn), "cycles", expected, Better::smaller);
}

// Each lane reads words of a table at random places.
__global__ void __launch_bounds__(k_threads, 1)
    read_random_words(int count, uint32_t n_words, uint32_t* out, long long* cycles) {
    extern __shared__ __align__(128) std::byte words_of_block[];
    fill_shared(words_of_block, static_cast<int>(4 * n_words));
    const auto* words = reinterpret_cast<const uint32_t*>(words_of_block);
    uint32_t state[4];
    for (uint32_t k = 0; k < 4; ++k) state[k] = (threadIdx.x * 4 + k) * 2654435761U + 1;
    uint32_t sum = 0;
    const long long start = clock64();
    for (int i = 0; i < count; ++i) {
        for (uint32_t& own : state) {
            own = own * 1664525U + 1013904223U;
            sum += words[(own >> 16) & (n_words - 1)];
        }
    }
    put_cycles(start, cycles);
    out[blockIdx.x * k_threads + threadIdx.x] = sum;
}

// 64 inputs x 16 rows for each warp and turn: eight products of 16 columns, whose inputs come from registers or from shared memory.
template <bool loads>
__global__ void __launch_bounds__(k_threads, 1) multiply_halves(int count, float* out, long long* cycles) {
    DeviceThread t;
    fill_shared(t.shared(), 65536);
    float sum[8][4] = {};
    uint32_t a[4];
    for (uint32_t k = 0; k < 4; ++k) a[k] = static_cast<uint32_t>(t.index()) * (k + 1) & 0x03FF03FFU;
    uint32_t b[4][4] = {};
    const long long start = clock64();
    for (int i = 0; i < count; ++i) {
        // Four loads of 8 inputs x 8 columns each: blocks of 128 bytes.
        if constexpr (loads) {
            const std::byte* columns = t.shared() + i % 32 * 2048;
            for (int k = 0; k < 4; ++k) t.load_matrices(b[k], columns + k * 512 + t.index() % 32 * 16);
        }
        for (int n = 0; n < 8; ++n) {
            const uint32_t pair[2] = {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]};
            t.mma_f16(sum[n], a, pair);
        }
    }
    put_cycles(start, cycles);
    float total = 0.0F;
    for (const auto& four : sum)
        for (const float x : four) total += x;
    out[int64_t{t.block()} * k_threads + t.index()] = total;
}

template <bool loads>
void probe_multiplication(const Device& device, const char* what, double expected) {
    constexpr int k_count = 4000;
    const Memory<float> out(int64_t{device.n_multiprocessors} * k_threads);
    const Memory<long long> cycles(device.n_multiprocessors);
    check(cudaFuncSetAttribute(multiply_halves<loads>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536),
          "shared memory of the probe");
    const double seconds = seconds_of([&](cudaStream_t stream) {
        multiply_halves<loads><<<static_cast<unsigned>(device.n_multiprocessors), k_threads, 65536, stream>>>(
            k_count, out.data(), cycles.data());
        check(cudaGetLastError(), "a kernel of the probe");
    });
    const double operations = 2.0 * 16 * 64 * 16 * k_warps * k_count * device.n_multiprocessors;
    report(what, operations / seconds * 1e-12, "TFLOP/s", expected, Better::larger);
}

}  // namespace

void probe_decoders(const Device& device) {
    probe_decoder<panel::Q8_0Panel<Lanes>>(device, "Q8_0", 20.5);
    probe_decoder<panel::Q4KPanel<Lanes>>(device, "Q4_K", 20.0);
    probe_decoder<panel::Q6KPanel<Lanes>>(device, "Q6_K", 29.0);
    probe_decoder<Iq2SNibbles>(device, "IQ2_S", 24.3);
    probe_decoder<Iq3SEntries>(device, "IQ3_S", 46.0);
    probe_decoder<panel::Iq4XsPanel<Lanes>>(device, "IQ4_XS", 32.5);
    probe_decoder<ByTables<panel::Iq4XsPanel<Lanes>>>(device, "IQ4_XS by tables", 19.5);
    probe_decoder<panel::Iq5KPanel<Lanes>>(device, "IQ5_K", 69.0);
    probe_decoder<ByTables<panel::Iq5KPanel<Lanes>>>(device, "IQ5_K by tables", 46.0);
    probe_decoder<panel::Iq6KPanel<Lanes>>(device, "IQ6_K", 115.0);
    probe_decoder<ByTables<panel::Iq6KPanel<Lanes>>>(device, "IQ6_K by tables", 80.0);
}

void probe_random_words(const Device& device) {
    constexpr int k_count = 4000;
    const Memory<uint32_t> out(int64_t{device.n_multiprocessors} * k_threads);
    const double expected[] = {3.2, 3.3, 3.4};
    for (int k = 0; k < 3; ++k) {
        const uint32_t n_words = 256U << k;
        const double cycles =
            cycles_of(device, read_random_words, static_cast<int>(4 * n_words), k_count, n_words, out.data());
        report("a load of random words of " + std::to_string(n_words), cycles / (4.0 * k_count * k_warps),
               "cycles", expected[k], Better::smaller);
    }
}

void probe_tensor_cores(const Device& device) {
    probe_multiplication<false>(device, "tensor cores, F16", 620);
    probe_multiplication<true>(device, "tensor cores, F16, inputs from shared memory", 450);
}

}  // namespace minim::probe
