// SPDX-License-Identifier: Apache-2.0
#include "cuda/runtime.h"

#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/format_text.h"
#include "base/memory_info.h"
#include "cuda/debug.h"
#include "cuda/fast/narrow.h"
#include "cuda/launch.h"

namespace minim::cuda::runtime {
namespace {

// The oldest generation that operations.cu is compiled for.
constexpr int k_oldest_major = 8;
// Drivers before that of CUDA 12.1 start no kernel with more than 4 KB of arguments, although they serve later runtimes.
constexpr int k_oldest_driver = 12010;

const char* text_of(cudaError_t error) {
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

// The state of this thread, set by use() and check_launch().
thread_local bool may_start_early = true;
thread_local const char* launch_error = nullptr;

// "fast::NormKernel" of the text that typeid() gives.
std::string readable(const char* type) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(type, nullptr, nullptr, &status), &std::free);
    return status == 0 ? name.get() : type;
}

// Returns a copy of the text that is never freed. There are only as many texts as kernels and errors.
const char* kept(std::string text) {
    static std::mutex mutex;
    static std::set<std::string> texts;
    const std::lock_guard lock(mutex);
    return texts.insert(std::move(text)).first->c_str();
}

cudaStream_t stream_of(Stream stream) {
    return static_cast<cudaStream_t>(stream);
}

cudaMemcpyKind kind_of(Way way) {
    switch (way) {
        case Way::to_device:
            return cudaMemcpyHostToDevice;
        case Way::to_host:
            return cudaMemcpyDeviceToHost;
        default:
            return cudaMemcpyDeviceToDevice;
    }
}

}  // namespace

backend::DeviceInfo device(int32_t index) {
    backend::DeviceInfo info;
    info.name = format_text("cuda:{}", index);
    cudaDeviceProp properties = {};
    if (const char* why = text_of(cudaGetDeviceProperties(&properties, index))) {
        info.why_not = why;
        return info;
    }
    info.description = properties.name;
    info.generation = format_text("sm_{}{}", properties.major, properties.minor);
    info.memory_bytes = properties.totalGlobalMem;
    int kilohertz = 0;
    if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, index) == cudaSuccess)
        info.multiprocessor_hz = 1e3 * properties.multiProcessorCount * kilohertz;
    if (properties.major < k_oldest_major) {
        info.why_not = format_text("no kernels for compute capability {}.{}, {}.0 is the oldest",
                                   properties.major, properties.minor, k_oldest_major);
        return info;
    }
    int driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver < k_oldest_driver) {
        info.why_not = format_text("the driver supports CUDA {}.{}; 12.1 or later is needed", driver / 1000,
                                   driver % 1000 / 10);
        return info;
    }
    info.shares_host_memory = properties.integrated != 0;
    size_t free = 0;
    size_t total = 0;
    const char* why = text_of(cudaSetDevice(index));
    // Of an integrated GPU the driver reports free pages only, not those of the page cache, and some drivers fail.
    if (why == nullptr && !info.shares_host_memory) why = text_of(cudaMemGetInfo(&free, &total));
    if (why == nullptr) why = fast::why_kernels_cannot_run();
    if (why != nullptr) info.why_not = why;
    info.free_bytes = info.shares_host_memory ? available_memory_bytes() : free;
    return info;
}

int32_t device_count() noexcept {
    int count = 0;
    return text_of(cudaGetDeviceCount(&count)) == nullptr ? count : 0;
}

std::vector<backend::DeviceInfo> devices() {
    int count = 0;
    const char* why = text_of(cudaGetDeviceCount(&count));
    if (why != nullptr || count == 0) {
        backend::DeviceInfo none;
        none.name = "cuda";
        none.why_not = why != nullptr ? why : "the driver knows no device";
        return {none};
    }
    std::vector<backend::DeviceInfo> all;
    all.reserve(count);
    for (int32_t i = 0; i < count; ++i) all.push_back(device(i));
    return all;
}

void use(int32_t device, bool early) noexcept {
    cudaGetLastError();  // an earlier error was reported by the call that met it; last_error() is for kernels
    launch_error = nullptr;
    may_start_early = early;
    cudaSetDevice(device);
}

bool is_lost(int32_t device) noexcept {
    use(device, may_start_early);
    if (shares_host_memory(device)) {  // cudaMemGetInfo may fail on a working device
        const cudaError_t error = cudaStreamQuery(cudaStreamPerThread);
        return error != cudaSuccess && error != cudaErrorNotReady;
    }
    size_t free = 0;
    size_t total = 0;
    return cudaMemGetInfo(&free, &total) != cudaSuccess;
}

bool starts_early() noexcept {
    return may_start_early && debug_switches().early;
}

void check_launch(Stream stream, const char* kernel_type) noexcept {
    cudaError_t error = cudaPeekAtLastError();
    if (error == cudaSuccess && debug_switches().sync) error = cudaStreamSynchronize(stream_of(stream));
    if (error == cudaSuccess || launch_error != nullptr) return;
    try {
        launch_error = kept(format_text("{}: {}", readable(kernel_type), cudaGetErrorString(error)));
    } catch (...) {  // no memory for the name
        launch_error = cudaGetErrorString(error);
    }
}

void* allocate(int32_t device, uint64_t bytes) {
    use(device);
    void* block = nullptr;
    return text_of(cudaMalloc(&block, bytes == 0 ? 1 : bytes)) == nullptr ? block : nullptr;
}

void release(int32_t device, void* block) noexcept {
    use(device);
    cudaFree(block);
}

uint64_t free_bytes(int32_t device) noexcept {
    use(device);
    size_t free = 0;
    size_t total = 0;
    return text_of(cudaMemGetInfo(&free, &total)) == nullptr ? free : 0;
}

bool shares_host_memory(int32_t device) noexcept {
    int is_integrated = 0;
    return text_of(cudaDeviceGetAttribute(&is_integrated, cudaDevAttrIntegrated, device)) == nullptr &&
           is_integrated != 0;
}

int32_t processor_count(int32_t device) noexcept {
    int count = 0;
    return text_of(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device)) == nullptr ? count
                                                                                                      : 1;
}

int64_t block_shared_bytes(int32_t device) noexcept {
    int bytes = 0;
    const cudaError_t error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return text_of(error) == nullptr ? bytes : 0;
}

bool has_bulk_copies(int32_t device) noexcept {
    int major = 0;
    const cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return text_of(error) == nullptr && major >= 9;
}

Stream make_stream(int32_t device) {
    use(device);
    cudaStream_t stream = nullptr;
    return text_of(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) == nullptr ? stream : nullptr;
}

void end_stream(int32_t device, Stream stream) noexcept {
    use(device);
    cudaStreamSynchronize(stream_of(stream));
    cudaStreamDestroy(stream_of(stream));
}

const char* synchronize(int32_t device, Stream stream) noexcept {
    use(device);
    return text_of(cudaStreamSynchronize(stream_of(stream)));
}

const char* query(int32_t device, Stream stream, bool& is_done) noexcept {
    use(device);
    const cudaError_t error = cudaStreamQuery(stream_of(stream));
    is_done = error != cudaErrorNotReady;
    return is_done ? text_of(error) : nullptr;
}

const char* copy(int32_t device, Way way, void* to, const void* from, uint64_t bytes) noexcept {
    use(device);
    if (const char* why = text_of(cudaMemcpy(to, from, bytes, kind_of(way)))) return why;
    // A copy to the device or within it may still be under way, and other streams would not wait for it.
    return way == Way::to_host ? nullptr : text_of(cudaStreamSynchronize(cudaStreamLegacy));
}

const char* copy_later(int32_t device, Stream stream, Way way, void* to, const void* from,
                       uint64_t bytes) noexcept {
    use(device);
    return text_of(cudaMemcpyAsync(to, from, bytes, kind_of(way), stream_of(stream)));
}

bool reach_peer(int32_t device, int32_t peer) noexcept {
    if (device == peer) return true;
    static std::atomic<uint64_t> is_asked[64];  // a bit a peer
    static std::atomic<uint64_t> is_reached[64];
    const uint64_t bit = uint64_t{1} << (peer % 64);
    if ((is_asked[device % 64] & bit) == 0) {
        int can = 0;
        use(device);
        if (cudaDeviceCanAccessPeer(&can, device, peer) == cudaSuccess && can != 0) {
            const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
            if (error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled)
                is_reached[device % 64].fetch_or(bit);
        }
        cudaGetLastError();
        is_asked[device % 64].fetch_or(bit);
    }
    return (is_reached[device % 64] & bit) != 0;
}

const char* copy_from_peer(int32_t device, Stream stream, void* to, int32_t peer, Stream peer_stream,
                           const void* from, uint64_t bytes) noexcept {
    reach_peer(device, peer);
    use(peer);
    cudaEvent_t made = nullptr;
    if (const char* why = text_of(cudaEventCreateWithFlags(&made, cudaEventDisableTiming))) return why;
    const char* why = text_of(cudaEventRecord(made, stream_of(peer_stream)));
    use(device);
    if (why == nullptr) why = text_of(cudaStreamWaitEvent(stream_of(stream), made, 0));
    if (why == nullptr) why = text_of(cudaMemcpyPeerAsync(to, device, from, peer, bytes, stream_of(stream)));
    cudaEventDestroy(made);  // destroyed when the stream has passed it
    return why;
}

const char* begin_record(int32_t device, Stream stream) noexcept {
    use(device);
    // Relaxed mode: this thread may use other streams freely while it records.
    return text_of(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeRelaxed));
}

Graph end_record(int32_t device, Stream stream, const char*& why) noexcept {
    use(device);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    why = text_of(cudaStreamEndCapture(stream_of(stream), &graph));
    if (why == nullptr && graph == nullptr) why = "the stream was not recorded";
    if (why != nullptr) return nullptr;
    why = text_of(cudaGraphInstantiate(&executable, graph, 0));
    cudaGraphDestroy(graph);
    return why == nullptr ? executable : nullptr;
}

const char* repeat(int32_t device, Graph graph, Stream stream) noexcept {
    use(device);
    return text_of(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream)));
}

void end_graph(int32_t device, Graph graph) noexcept {
    use(device);
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

void* allocate_host(int32_t device, uint64_t bytes) {
    use(device);
    void* block = nullptr;
    return text_of(cudaMallocHost(&block, bytes == 0 ? 1 : bytes)) == nullptr ? block : nullptr;
}

void release_host(int32_t device, void* block) noexcept {
    use(device);
    cudaFreeHost(block);
}

Pinning pin_host(int32_t device, const void* memory, uint64_t bytes) noexcept {
    use(device);
    const cudaError_t error = cudaHostRegister(const_cast<void*>(memory), bytes, cudaHostRegisterPortable);
    cudaGetLastError();
    if (error == cudaErrorHostMemoryAlreadyRegistered) return Pinning::was_pinned;
    return error == cudaSuccess ? Pinning::done : Pinning::refused;
}

void unpin_host(int32_t device, const void* memory) noexcept {
    use(device);
    cudaHostUnregister(const_cast<void*>(memory));
    cudaGetLastError();
}

const char* last_error() noexcept {
    const char* error = text_of(cudaGetLastError());
    const char* named = std::exchange(launch_error, nullptr);
    return named != nullptr ? named : error;
}

}  // namespace minim::cuda::runtime
