// cuda/runtime.h on host memory: two devices without streams, whose work is done when a call returns.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cuda/runtime.h"
#include "gpu/recorder.h"

namespace minim::cuda::runtime {
namespace {

constexpr uint64_t k_memory_bytes = uint64_t{4} << 30;

}  // namespace

std::vector<backend::DeviceInfo> devices() {
    std::vector<backend::DeviceInfo> all(2);
    all[0].name = "cuda:0";
    all[1].name = "cuda:1";
    for (backend::DeviceInfo& device : all) device.memory_bytes = device.free_bytes = k_memory_bytes;
    return all;
}

void use(int32_t) noexcept {}

void* allocate(int32_t, uint64_t bytes) {
    if (bytes > k_memory_bytes) return nullptr;
    ++test::blocks_taken();
    void* block = std::malloc(bytes == 0 ? 1 : bytes);
    if (block != nullptr) std::memset(block, 0xFF, bytes);  // NaN until it is written
    return block;
}

void release(int32_t, void* block) noexcept {
    std::free(block);
}

uint64_t free_bytes(int32_t) noexcept {
    return k_memory_bytes;
}

int32_t processor_count(int32_t) noexcept {
    return 6;
}

Stream make_stream(int32_t) {
    return std::malloc(1);
}

void end_stream(int32_t, Stream stream) noexcept {
    std::free(stream);
}

const char* synchronize(int32_t, Stream) noexcept {
    return nullptr;
}

const char* copy(int32_t, Way, void* to, const void* from, uint64_t bytes) noexcept {
    if (bytes > 0) std::memmove(to, from, bytes);
    return nullptr;
}

const char* copy_later(int32_t device, Stream, Way way, void* to, const void* from, uint64_t bytes) noexcept {
    if (test::recording() != nullptr && way != Way::on_device)
        return "a copy to or from the host cannot be recorded";
    test::do_or_record([=] { copy(device, way, to, from, bytes); });
    return nullptr;
}

const char* begin_record(int32_t, Stream) noexcept {
    if (test::records().refuse) return "no record can be begun";
    test::recording() = new test::RecordedWork;
    return nullptr;
}

Graph end_record(int32_t, Stream) noexcept {
    test::RecordedWork* work = std::exchange(test::recording(), nullptr);
    if (!test::records().fail) return work;
    delete work;
    return nullptr;
}

const char* repeat(int32_t, Graph graph, Stream) noexcept {
    ++test::records().n_repeats;
    for (const auto& work : *static_cast<test::RecordedWork*>(graph)) work();
    return nullptr;
}

void end_graph(int32_t, Graph graph) noexcept {
    delete static_cast<test::RecordedWork*>(graph);
}

void* allocate_host(int32_t device, uint64_t bytes) {
    return allocate(device, bytes);
}

void release_host(int32_t device, void* block) noexcept {
    release(device, block);
}

const char* copy_from_peer(int32_t device, Stream, void* to, int32_t, Stream, const void* from,
                           uint64_t bytes) noexcept {
    return copy(device, Way::on_device, to, from, bytes);
}

const char* last_error(int32_t) noexcept {
    return nullptr;
}

}  // namespace minim::cuda::runtime
