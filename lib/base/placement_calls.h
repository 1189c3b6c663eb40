// SPDX-License-Identifier: Apache-2.0
// The system calls for placing threads and memory, in one table so that a test can make them fail. They often fail in containers:
// mbind and move_pages need CAP_SYS_NICE or a seccomp profile that allows them.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <span>

namespace minim {

// Each returns 0 or an errno.
struct PlacementCalls {
    // Binds the thread to these logical CPUs.
    int (*bind_thread)(pthread_t thread, std::span<const int> cores);
    // Places pages that are not present yet: on the node, as long as it has room, or interleaved over several nodes. `nodes` has
    // the system's numbers.
    int (*bind_memory)(void* data, uint64_t bytes, std::span<const int32_t> nodes);
    // Sets nodes[i] to the system's number of the node of the page at pages[i], below 0 if it is not present.
    int (*find_pages)(std::span<void* const> pages, std::span<int> nodes);
    // Locks pages: they stay in memory once they are present.
    int (*lock_memory)(const void* data, uint64_t bytes);
};

const PlacementCalls& system_placement_calls() noexcept;

}  // namespace minim
