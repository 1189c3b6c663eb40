// SPDX-License-Identifier: Apache-2.0
// The memory of a simulated device: a limited number of bytes at addresses that the host cannot access. The bytes are at
// other addresses of the process; only the device knows the difference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "backend/device_memory.h"

namespace minim::sim {

class AddressSpace : public backend::BlockSource {
  public:
    // Throws out_of_memory if the system has no room for the addresses.
    explicit AddressSpace(uint64_t capacity);
    ~AddressSpace() override;
    AddressSpace(const AddressSpace&) = delete;
    AddressSpace& operator=(const AddressSpace&) = delete;

    // Returns null if the capacity is not sufficient.
    std::byte* take(uint64_t bytes) override;
    void give_back(std::byte* block, uint64_t bytes) noexcept override;
    uint64_t free_bytes() const noexcept override { return capacity_ - used(); }

    uint64_t used() const noexcept;
    uint64_t most_used() const noexcept;  // so far
    int64_t n_taken() const noexcept;     // blocks, so far

    // Returns where the bytes of a device address are. Throws internal for an address that is none of this device's.
    std::byte* bytes_at(const std::byte* address) const;

  private:
    const uint64_t capacity_;
    const uint64_t range_;  // of addresses: more than the capacity, so that blocks are found in spite of gaps
    std::byte* addresses_ = nullptr;
    std::byte* bytes_ = nullptr;
    mutable std::mutex mutex_;
    uint64_t used_ = 0;
    uint64_t most_used_ = 0;
    int64_t n_taken_ = 0;
    std::map<uint64_t, uint64_t> gaps_;  // place and size
};

}  // namespace minim::sim
