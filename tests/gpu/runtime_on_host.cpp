// SPDX-License-Identifier: Apache-2.0
// cuda/runtime.h on host memory: two devices whose work is done when a call returns, with three exceptions. The
// emulation may finish kernels late. A stream reads pinned memory as late as it may. Records that wait for the host run
// on a thread of their own.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda/launch.h"
#include "cuda/runtime.h"
#include "gpu/recorder.h"

namespace minim::cuda::runtime {
namespace {

constexpr uint64_t k_memory_bytes = uint64_t{4} << 30;

struct Late {
    Stream stream;
    void* to;
    const void* from;
    uint64_t bytes;
};

struct State {
    std::mutex mutex;
    std::vector<Late> late;
    std::map<const std::byte*, uint64_t> pinned;
};

State& state() {
    static State state;
    return state;
}

// Makes the copies that the stream has postponed; null: those of all streams.
void catch_up(Stream stream) {
    const std::lock_guard lock(state().mutex);
    std::vector<Late>& late = state().late;
    for (const Late& one : late)
        if (stream == nullptr || one.stream == stream) std::memcpy(one.to, one.from, one.bytes);
    std::erase_if(late, [&](const Late& one) { return stream == nullptr || one.stream == stream; });
}

// Returns the pinned bytes from `place` on, up to the end of the range that was pinned at once; 0: it is not pinned.
uint64_t pinned_from(const void* place) {
    const std::lock_guard lock(state().mutex);
    const auto* byte = static_cast<const std::byte*>(place);
    const auto next = state().pinned.upper_bound(byte);
    if (next == state().pinned.begin()) return 0;
    const auto& [block, bytes] = *std::prev(next);
    return byte < block + bytes ? static_cast<uint64_t>(block + bytes - byte) : 0;
}

// Finishes this thread's late kernels. Returns the error text, or null if there is none.
const char* finish_own_kernels() noexcept {
    static std::string why;
    try {
        test::finish_kernels();
        return nullptr;
    } catch (const std::exception& error) {
        why = error.what();
        return why.c_str();
    }
}

// The record that runs on a thread of its own. All later work of the devices waits for it.
struct Aside {
    std::mutex mutex;
    std::shared_future<void> work;
    const char* why = nullptr;  // an error that has not been reported yet
};

Aside& aside() {
    static Aside aside;
    return aside;
}

bool& is_aside() {
    static thread_local bool is = false;
    return is;
}

void finish_record() noexcept {
    if (test::outside_work().valid()) test::outside_work().wait();
    if (is_aside()) return;
    std::shared_future<void> work;
    {
        const std::lock_guard lock(aside().mutex);
        work = aside().work;
    }
    if (work.valid()) work.wait();
}

const char* do_work(const test::RecordedWork& record) noexcept {
    try {
        for (const auto& work : record.work) work();
    } catch (const std::exception& error) {
        static std::string why;
        why = error.what();
        return why.c_str();
    }
    return finish_own_kernels();
}

void do_aside(const test::RecordedWork& record) {
    const std::lock_guard lock(aside().mutex);
    aside().work = std::async(std::launch::async, [&record] {
        is_aside() = true;
        const char* why = do_work(record);
        const std::lock_guard own_lock(aside().mutex);
        aside().why = why;
    });
}

const char* finish_kernels() noexcept {
    finish_record();
    const char* why = finish_own_kernels();
    if (is_aside()) return why;
    const std::lock_guard lock(aside().mutex);
    const char* why_record = std::exchange(aside().why, nullptr);
    return why_record != nullptr ? why_record : why;
}

}  // namespace

std::vector<backend::DeviceInfo> devices() {
    std::vector<backend::DeviceInfo> all(2);
    all[0].name = "cuda:0";
    all[1].name = "cuda:1";
    for (backend::DeviceInfo& device : all) device.memory_bytes = device.free_bytes = k_memory_bytes;
    return all;
}

// Called before kernels are launched, in any stream.
void use(int32_t, bool early) noexcept {
    finish_record();
    test::starts_early() = early;
    if (test::recording() == nullptr) catch_up(nullptr);
}

void* allocate(int32_t, uint64_t bytes) {
    if (bytes > k_memory_bytes) return nullptr;
    ++test::blocks_taken();
    void* block = std::malloc(bytes == 0 ? 1 : bytes);
    if (block != nullptr) std::memset(block, 0xFF, bytes);  // NaN until it is written
    return block;
}

void release(int32_t, void* block) noexcept {
    finish_kernels();
    std::free(block);
}

uint64_t free_bytes(int32_t) noexcept {
    return k_memory_bytes;
}

bool shares_host_memory(int32_t) noexcept {
    return false;
}

int32_t processor_count(int32_t) noexcept {
    return 6;
}

int64_t block_shared_bytes(int32_t) noexcept {
    return test::block_shared_bytes();
}

bool has_bulk_copies(int32_t) noexcept {
    return test::has_bulk_copies();
}

Stream make_stream(int32_t) {
    return std::malloc(1);
}

void end_stream(int32_t, Stream stream) noexcept {
    finish_kernels();
    catch_up(stream);
    std::free(stream);
}

const char* synchronize(int32_t, Stream stream) noexcept {
    const char* why = finish_kernels();
    catch_up(stream);
    return why;
}

const char* query(int32_t device, Stream stream, bool& is_done) noexcept {
    const std::shared_future<void>& outside = test::outside_work();
    is_done = !outside.valid() || outside.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    return is_done ? synchronize(device, stream) : nullptr;
}

bool reach_peer(int32_t, int32_t) noexcept {
    return test::reaches_peers();
}

const char* copy(int32_t, Way, void* to, const void* from, uint64_t bytes) noexcept {
    const char* why = finish_kernels();
    if (bytes > 0) std::memmove(to, from, bytes);
    return why;
}

const char* copy_later(int32_t device, Stream stream, Way way, void* to, const void* from,
                       uint64_t bytes) noexcept {
    if (test::recording() != nullptr && way != Way::on_device)
        return "a copy to or from the host cannot be recorded";
    if (way == Way::to_device) ++test::copies_to_device();
    if (const uint64_t pinned = pinned_from(from); way == Way::to_device && pinned > 0) {
        if (pinned < bytes) return "invalid argument";  // as the driver says
        const char* why = finish_kernels();
        const std::lock_guard lock(state().mutex);
        state().late.push_back({stream, to, from, bytes});
        test::most_late_copies() = std::max(test::most_late_copies(), state().late.size());
        return why;
    }
    catch_up(nullptr);
    if (test::recording() == nullptr) return copy(device, way, to, from, bytes);
    test::do_or_record([=] {
        if (const char* why = copy(device, way, to, from, bytes)) throw std::runtime_error(why);
    });
    return nullptr;
}

const char* begin_record(int32_t, Stream) noexcept {
    if (test::records().refuse) return "no record can be begun";
    if (const char* why = finish_kernels(); why != nullptr) return why;
    test::recording() = new test::RecordedWork;
    return nullptr;
}

bool is_lost(int32_t) noexcept {
    return test::device_errors().is_lost;
}

bool starts_early() noexcept {
    return test::starts_early();
}

void check_launch(Stream, const char*) noexcept {}

Graph end_record(int32_t, Stream, const char*& why) noexcept {
    test::RecordedWork* work = std::exchange(test::recording(), nullptr);
    why = nullptr;
    if (test::records().fail || (test::records().refuse_early && work->has_early_kernel)) {
        why = "it cannot be a graph";
        delete work;
        return nullptr;
    }
    ++test::graphs_stored();
    return work;
}

const char* repeat(int32_t, Graph graph, Stream) noexcept {
    if (const char* why = finish_kernels(); why != nullptr) return why;
    catch_up(nullptr);
    if (test::records().no_room || ++test::records().n_asked == test::records().fail_at_repeat)
        return "out of memory";
    ++test::records().n_repeats;
    const auto& record = *static_cast<test::RecordedWork*>(graph);
    if (!record.waits_for_host) {
        for (const auto& work : record.work) work();
        return finish_kernels();
    }
    do_aside(record);
    return nullptr;
}

void end_graph(int32_t, Graph graph) noexcept {
    finish_record();
    --test::graphs_stored();
    delete static_cast<test::RecordedWork*>(graph);
}

void* allocate_host(int32_t device, uint64_t bytes) {
    if (test::refuses_pinned()) return nullptr;
    void* block = allocate(device, bytes);
    const std::lock_guard lock(state().mutex);
    if (block != nullptr) state().pinned[static_cast<const std::byte*>(block)] = bytes;
    return block;
}

void release_host(int32_t device, void* block) noexcept {
    {
        const std::lock_guard lock(state().mutex);
        state().pinned.erase(static_cast<const std::byte*>(block));
    }
    release(device, block);
}

Pinning pin_host(int32_t, const void* memory, uint64_t bytes) noexcept {
    if (test::refuses_pinned()) return Pinning::refused;
    const std::lock_guard lock(state().mutex);
    const bool is_new = state().pinned.try_emplace(static_cast<const std::byte*>(memory), bytes).second;
    return is_new ? Pinning::done : Pinning::was_pinned;
}

void unpin_host(int32_t, const void* memory) noexcept {
    catch_up(nullptr);
    const std::lock_guard lock(state().mutex);
    state().pinned.erase(static_cast<const std::byte*>(memory));
}

const char* copy_from_peer(int32_t device, Stream, void* to, int32_t, Stream, const void* from,
                           uint64_t bytes) noexcept {
    catch_up(nullptr);
    return copy(device, Way::on_device, to, from, bytes);
}

const char* last_error() noexcept {
    if (const char* why = std::exchange(test::device_errors().of_launch, nullptr)) return why;
    return test::recording() != nullptr && test::records().spoil ? "somebody broke the record off" : nullptr;
}

}  // namespace minim::cuda::runtime
