// SPDX-License-Identifier: Apache-2.0
#include "backend/host_device.h"

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

// A block whose bytes are in `count` from its construction to its destruction.
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

uint64_t HostDevice::available_bytes() const noexcept {
    return available_memory_bytes();
}

std::unique_ptr<Memory> allocate_host_memory(uint64_t bytes, std::string_view what) {
    return std::make_unique<HostBlock>(Buffer(bytes, what));
}

std::unique_ptr<Memory> HostDevice::allocate(uint64_t bytes, std::string_view what, MemoryUse use) const {
    const HostMemory memory = use == MemoryUse::work ? host_memory().locked(false) : host_memory();
    return std::make_unique<CountedHostBlock>(memory.take(bytes, what),
                                              host_bytes_[static_cast<size_t>(use)]);
}

MemoryState HostDevice::memory() const noexcept {
    MemoryState state;
    for (size_t use = 0; use < k_memory_uses; ++use) state.used_bytes[use] = host_bytes_[use];
    state.free_bytes = available_bytes();
    return state;
}

void HostDevice::write(std::byte* to, const std::byte* from_host, uint64_t bytes) const {
    std::memcpy(to, from_host, bytes);
}

void HostDevice::read(std::byte* to_host, const std::byte* from, uint64_t bytes) const {
    std::memcpy(to_host, from, bytes);
}

void HostDevice::copy(std::byte* to, const std::byte* from, uint64_t bytes) const noexcept {
    std::memcpy(to, from, bytes);
}

void HostDevice::upload(Scratch&, std::byte* to, const std::byte* from_host, uint64_t bytes) const {
    std::memcpy(to, from_host, bytes);
}

void HostDevice::download(Scratch&, std::byte* to_host, const std::byte* from, uint64_t bytes) const {
    std::memcpy(to_host, from, bytes);
}

void HostDevice::move(Scratch&, std::byte* to, const std::byte* from, uint64_t bytes) const {
    std::memcpy(to, from, bytes);
}

void HostDevice::pack_rows(const Matrix& shape, const std::byte* rows, std::byte* to) const noexcept {
    std::memcpy(to, rows, shape.rows * shape.row_bytes);
}

void HostDevice::run_tasks(int64_t n_tasks, const std::function<void(int64_t, int32_t)>& task) const {
    for (int64_t i = 0; i < n_tasks; ++i) task(i, 0);
}

// Packs one panel at a time, from a copy of its rows.
void HostDevice::pack(std::span<std::byte* const> data, const Matrix& shape) const {
    Matrix panel = shape;
    panel.rows = pack_rows_together();
    const int64_t panel_bytes = panel.rows * shape.row_bytes;
    const int64_t n_panels = shape.rows / panel.rows;
    const Buffer copies(static_cast<uint64_t>(n_threads() * panel_bytes), "a panel of weights");
    run_tasks(std::ssize(data) * n_panels, [&](int64_t task, int32_t thread) {
        std::byte* rows = data[task / n_panels] + task % n_panels * panel_bytes;
        std::byte* copy = copies.data() + thread * panel_bytes;
        std::memcpy(copy, rows, panel_bytes);
        pack_rows(panel, copy, rows);
    });
}

void HostDevice::scale(Scratch&, float* x, int64_t count, float factor) const {
    for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

void HostDevice::post(Scratch&, Exchange&, int64_t, const float*, const int32_t*, int64_t, int64_t,
                      int64_t) const {
    fail_internal("{} posts nothing to the host", name());
}

void HostDevice::collect(Scratch&, Exchange&, int64_t, const ExpertPlace*, const int32_t*, int64_t, int64_t,
                         int64_t, float*) const {
    fail_internal("{} collects nothing from the host", name());
}

void HostDevice::top_k(Scratch&, const float*, int64_t, int64_t, const TopKTask&) const {
    fail_internal("{} does not compute top-k", name());
}

}  // namespace minim::backend
