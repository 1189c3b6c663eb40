// What placing threads and memory asks of the system, apart from the rest so that a test can make the system refuse.
// Containers often do: mbind and move_pages want CAP_SYS_NICE or a seccomp profile that knows them.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <span>

namespace minim {

// Each returns 0 or an errno.
struct PlacementCalls {
    // The thread runs on these processors alone.
    int (*bind_thread)(pthread_t thread, std::span<const int> cores);
    // Pages of whole pages that are not present yet will lie on the node, as long as it has room, or on several nodes
    // in turn. Nodes by the system's numbers.
    int (*bind_memory)(void* data, uint64_t bytes, std::span<const int32_t> nodes);
    // nodes[i] becomes the number of the node where the page at pages[i] lies, below 0 where it is not present.
    int (*find_pages)(std::span<void* const> pages, std::span<int> nodes);
    // Pages stay in memory once they are present.
    int (*lock_memory)(const void* data, uint64_t bytes);
};

const PlacementCalls& system_placement_calls() noexcept;

}  // namespace minim
