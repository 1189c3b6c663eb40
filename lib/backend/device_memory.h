// SPDX-License-Identifier: Apache-2.0
// The memory of a device, as its backend allocates it: blocks are counted by use and limited by a budget. Freed
// blocks are kept for later ones of their size: on a GPU, allocating and freeing wait for all work of the device, so
// sessions that come and go would stop the others.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"

namespace minim::backend {

inline constexpr uint64_t k_no_budget = UINT64_MAX;

struct MemoryState {
    std::array<uint64_t, k_memory_uses> used_bytes = {};  // by use
    uint64_t kept_bytes = 0;                              // free, kept for later blocks
    uint64_t budget_bytes = k_no_budget;                  // limit of what is used and kept
    uint64_t free_bytes = 0;  // bytes that can still be allocated, kept blocks included; UINT64_MAX: unknown

    uint64_t used(MemoryUse use) const noexcept { return used_bytes[static_cast<size_t>(use)]; }
    uint64_t used() const noexcept;  // for everything
};

// Returns "; 800 of the budget of 1000 bytes are used", for errors; empty without a budget.
std::string budget_text(const MemoryState& state);

// The source of a device's blocks. Any thread.
class BlockSource {
  public:
    virtual ~BlockSource() = default;
    virtual std::byte* take(uint64_t bytes) = 0;  // null if there is not enough memory
    virtual void give_back(std::byte* block, uint64_t bytes) noexcept = 0;
    virtual uint64_t free_bytes() const noexcept = 0;
};

// Any thread. All blocks must be freed before this object is destroyed.
class DeviceMemory {
  public:
    // `device` is named in errors, whose status is `none_left`; `source` must outlive this object.
    DeviceMemory(std::string device, BlockSource& source, uint64_t budget_bytes = k_no_budget,
                 Status none_left = Status::out_of_device_memory);
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    // Allocates a block, as Backend::allocate does.
    std::unique_ptr<Memory> allocate(uint64_t bytes, std::string_view what, MemoryUse use);
    MemoryState state() const noexcept;
    void give_back_kept() noexcept;

    // Throws what allocate() throws if there is not enough memory.
    [[noreturn]] void fail(uint64_t bytes, std::string_view what) const;

  private:
    struct Allocation {
        std::byte* data = nullptr;
        uint64_t bytes = 0;
    };
    class Block;
    Allocation take(uint64_t bytes, MemoryUse use);
    Allocation take_kept(uint64_t bytes) noexcept;
    void release(Allocation place, MemoryUse use) noexcept;
    void give_back_oldest() noexcept;

    const std::string device_;
    BlockSource& source_;
    const uint64_t budget_bytes_;
    const Status none_left_;
    const uint64_t most_kept_bytes_;
    mutable std::mutex mutex_;
    MemoryState state_;             // without free_bytes
    std::vector<Allocation> kept_;  // the oldest first
};

}  // namespace minim::backend
