// SPDX-License-Identifier: Apache-2.0
#include "memory_reserve.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace program {

namespace {

// What a command, or requests under way, allocate until they have ended; a block of this size goes back to the system at once.
constexpr size_t k_reserve_bytes = size_t{4} << 20;

std::atomic<void*> reserve = nullptr;

// Called by operator new, which then tries again.
void give_back_reserve() {
    void* block = reserve.exchange(nullptr);
    if (block == nullptr) throw std::bad_alloc();
    std::free(block);
}

}  // namespace

void keep_reserve() {
    reserve = std::malloc(k_reserve_bytes);
    if (reserve == nullptr) throw std::bad_alloc();
    std::set_new_handler(give_back_reserve);
}

void renew_reserve() noexcept {
    if (reserve != nullptr) return;
    void* block = std::malloc(k_reserve_bytes);
    void* none = nullptr;
    if (block != nullptr && !reserve.compare_exchange_strong(none, block)) std::free(block);
}

}  // namespace program
