// SPDX-License-Identifier: Apache-2.0
// What a backend of host memory need not write itself.
#include "backend/backend.h"

#include <cstring>

#include "backend/device_memory.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/memory_info.h"

namespace minim::backend {
namespace {

class HostBlock : public Memory {
  public:
    explicit HostBlock(Buffer buffer) : Memory(buffer.data(), buffer.size()), buffer_(std::move(buffer)) {}

  private:
    Buffer buffer_;
};

// Counted for as long as it lives.
class CountedHostBlock : public HostBlock {
  public:
    CountedHostBlock(Buffer buffer, std::atomic<uint64_t>& count)
        : HostBlock(std::move(buffer)), count_(count) {
        count_ += size_;
    }
    ~CountedHostBlock() override { count_ -= size_; }

  private:
    std::atomic<uint64_t>& count_;
};

}  // namespace

const HostMemory& Backend::host_memory() const noexcept {
    static const HostMemory k_anywhere;
    return k_anywhere;
}

const ThreadPool* Backend::threads_for(int64_t) const noexcept {
    return nullptr;
}

uint64_t Backend::available_bytes() const noexcept {
    return available_memory_bytes();
}

std::unique_ptr<Memory> allocate_host_memory(uint64_t bytes, std::string_view what) {
    return std::make_unique<HostBlock>(Buffer(bytes, what));
}

std::unique_ptr<Memory> Backend::allocate(uint64_t bytes, std::string_view what, MemoryUse use) const {
    const HostMemory memory = use == MemoryUse::work ? host_memory().locked(false) : host_memory();
    return std::make_unique<CountedHostBlock>(memory.take(bytes, what),
                                              host_bytes_[static_cast<size_t>(use)]);
}

std::unique_ptr<Memory> Backend::allocate_staging(uint64_t bytes, std::string_view what) const {
    return uses_host_memory() ? allocate(bytes, what) : allocate_host_memory(bytes, what);
}

MemoryState Backend::memory() const noexcept {
    MemoryState state;
    for (size_t use = 0; use < k_memory_uses; ++use) state.used_bytes[use] = host_bytes_[use];
    state.free_bytes = available_bytes();
    return state;
}

void Backend::write(std::byte* to, const std::byte* from_host, uint64_t bytes) const {
    std::memcpy(to, from_host, bytes);
}

void Backend::read(std::byte* to_host, const std::byte* from, uint64_t bytes) const {
    std::memcpy(to_host, from, bytes);
}

void Backend::copy(std::byte* to, const std::byte* from, uint64_t bytes) const noexcept {
    std::memcpy(to, from, bytes);
}

void Backend::upload(Scratch&, std::byte* to, const std::byte* from_host, uint64_t bytes) const {
    std::memcpy(to, from_host, bytes);
}

void Backend::download(Scratch&, std::byte* to_host, const std::byte* from, uint64_t bytes) const {
    std::memcpy(to_host, from, bytes);
}

void Backend::move(Scratch&, std::byte* to, const std::byte* from, uint64_t bytes) const {
    std::memcpy(to, from, bytes);
}

bool Backend::receive(Scratch&, std::byte*, const Backend&, Scratch&, const std::byte*, uint64_t) const {
    return false;
}

bool Backend::begin_step(Scratch&, const StepBatch&) const {
    return false;
}

bool Backend::end_step(Scratch&) const {
    return true;
}

void Backend::synchronize(Scratch&) const {}

void Backend::wait(Scratch& scratch) const {
    synchronize(scratch);
}

void Backend::pack_rows(const Matrix& shape, const std::byte* rows, std::byte* to) const noexcept {
    std::memcpy(to, rows, static_cast<size_t>(shape.rows * shape.row_bytes));
}

void Backend::run_tasks(int64_t n_tasks, const std::function<void(int64_t, int32_t)>& task) const {
    for (int64_t i = 0; i < n_tasks; ++i) task(i, 0);
}

void Backend::scale(Scratch&, float* x, int64_t count, float factor) const {
    for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

std::unique_ptr<Exchange> Backend::make_exchange(const StepLimits&, int64_t) const {
    return nullptr;
}

void Backend::post(Scratch&, Exchange&, int64_t, const float*, const int32_t*, int64_t, int64_t,
                   int64_t) const {
    fail_internal("{} posts nothing to the host", name());
}

void Backend::collect(Scratch&, Exchange&, int64_t, const ExpertPlace*, const int32_t*, int64_t, int64_t,
                      int64_t, float*) const {
    fail_internal("{} collects nothing from the host", name());
}

void Backend::shortlist(Scratch&, const float*, int64_t, int64_t, const ShortlistTask&) const {
    fail_internal("{} does not compute top-k", name());
}

}  // namespace minim::backend
