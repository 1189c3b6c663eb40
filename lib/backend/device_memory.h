// The memory of a device as its backend hands it out: every block counted by what it is for.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "backend/backend.h"

namespace minim::backend {

struct MemoryState {
    std::array<uint64_t, k_memory_uses> used_bytes = {};  // a use
    uint64_t free_bytes = 0;                              // that could still be had; UINT64_MAX: not known

    uint64_t used(MemoryUse use) const noexcept { return used_bytes[static_cast<size_t>(use)]; }
};

// Where the blocks of a device come from. Any thread.
class BlockSource {
  public:
    virtual ~BlockSource() = default;
    virtual std::byte* take(uint64_t bytes) = 0;  // null where there is no room
    virtual void give_back(std::byte* block, uint64_t bytes) noexcept = 0;
    virtual uint64_t free_bytes() const noexcept = 0;
};

// Any thread. The blocks end before it.
class DeviceMemory {
  public:
    // `device` is named in errors; `source` must outlive it.
    DeviceMemory(std::string device, BlockSource& source);
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    // As Backend::allocate.
    std::unique_ptr<Memory> allocate(uint64_t bytes, std::string_view what, MemoryUse use);
    MemoryState state() const noexcept;

    // Throws what allocate() throws where there is no room.
    [[noreturn]] void fail(uint64_t bytes, std::string_view what) const;

  private:
    class Block;
    void release(std::byte* block, uint64_t bytes, MemoryUse use) noexcept;

    const std::string device_;
    BlockSource& source_;
    mutable std::mutex mutex_;
    std::array<uint64_t, k_memory_uses> used_bytes_ = {};
};

}  // namespace minim::backend
