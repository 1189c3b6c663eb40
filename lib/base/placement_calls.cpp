// SPDX-License-Identifier: Apache-2.0
#include "base/placement_calls.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <linux/mempolicy.h>

namespace minim {
namespace {

int bind_thread(pthread_t thread, std::span<const int> cores) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores) {
        if (core < 0 || core >= CPU_SETSIZE) return EINVAL;
        CPU_SET(static_cast<unsigned>(core), &set);
    }
    return pthread_setaffinity_np(thread, sizeof(set), &set);
}

int bind_memory(void* data, uint64_t bytes, std::span<const int32_t> nodes) {
    constexpr size_t k_word_bits = 8 * sizeof(unsigned long);
    constexpr size_t k_words = 16;
    std::array<unsigned long, k_words> mask = {};
    for (const int32_t node : nodes) {
        const auto bit = static_cast<size_t>(node);
        if (bit >= k_words * k_word_bits) return EINVAL;
        mask[bit / k_word_bits] |= 1UL << (bit % k_word_bits);
    }
    const int mode = nodes.size() == 1 ? MPOL_PREFERRED : MPOL_INTERLEAVE;
    // The kernel uses one bit less than the given count.
    return ::syscall(SYS_mbind, data, bytes, mode, mask.data(), k_words * k_word_bits + 1, 0) == 0 ? 0
                                                                                                   : errno;
}

int find_pages(std::span<void* const> pages, std::span<int> nodes) {
    return ::syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes.data(), 0) == 0 ? 0
                                                                                                   : errno;
}

// Locks without prefaulting: the caller prefaults part by part, so that it can be cancelled.
int lock_memory(const void* data, uint64_t bytes) {
    return ::mlock2(data, bytes, MLOCK_ONFAULT) == 0 ? 0 : errno;
}

constexpr PlacementCalls k_system = {bind_thread, bind_memory, find_pages, lock_memory};

}  // namespace

const PlacementCalls& system_placement_calls() noexcept {
    return k_system;
}

}  // namespace minim
