// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"

namespace minim::sim {
namespace {

constexpr uint64_t k_page = 4096;

std::byte* reserve(uint64_t bytes, int protection) {
    void* place = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) fail_out_of_memory("addresses of a simulated device", bytes, 0);
    return static_cast<std::byte*>(place);
}

}  // namespace

AddressSpace::AddressSpace(uint64_t capacity)
    : capacity_(capacity), range_(align_up(4 * capacity + k_page, k_page)) {
    addresses_ = reserve(range_, PROT_NONE);
    try {
        bytes_ = reserve(range_, PROT_READ | PROT_WRITE);
        gaps_[0] = range_;
    } catch (...) {
        ::munmap(addresses_, range_);
        if (bytes_ != nullptr) ::munmap(bytes_, range_);
        throw;
    }
}

AddressSpace::~AddressSpace() {
    ::munmap(addresses_, range_);
    ::munmap(bytes_, range_);
}

std::byte* AddressSpace::take(uint64_t bytes) {
    const uint64_t size = align_up(bytes, k_page);
    const std::lock_guard lock(mutex_);
    if (bytes > capacity_ || size > capacity_ - used_) return nullptr;
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
        const auto [place, room] = *gap;
        if (room < size) continue;
        gaps_.erase(gap);
        if (room > size) gaps_[place + size] = room - size;
        used_ += size;
        most_used_ = std::max(most_used_, used_);
        ++n_taken_;
        return addresses_ + place;
    }
    return nullptr;
}

void AddressSpace::give_back(std::byte* block, uint64_t bytes) noexcept {
    const auto place = static_cast<uint64_t>(block - addresses_);
    const uint64_t size = align_up(bytes, k_page);
    const std::lock_guard lock(mutex_);
    used_ -= size;
    ::madvise(bytes_ + place, size, MADV_DONTNEED);
    auto gap = gaps_.emplace(place, size).first;
    const auto next = std::next(gap);
    if (next != gaps_.end() && next->first == place + size) {
        gap->second += next->second;
        gaps_.erase(next);
    }
    if (gap == gaps_.begin()) return;
    const auto before = std::prev(gap);
    if (before->first + before->second != place) return;
    before->second += gap->second;
    gaps_.erase(gap);
}

uint64_t AddressSpace::used() const noexcept {
    const std::lock_guard lock(mutex_);
    return used_;
}

uint64_t AddressSpace::most_used() const noexcept {
    const std::lock_guard lock(mutex_);
    return most_used_;
}

int64_t AddressSpace::n_taken() const noexcept {
    const std::lock_guard lock(mutex_);
    return n_taken_;
}

std::byte* AddressSpace::bytes_at(const std::byte* address) const {
    if (address < addresses_ || address >= addresses_ + range_)
        fail_internal("a simulated device was given an address that is not its own");
    return bytes_ + (address - addresses_);
}

}  // namespace minim::sim
