// How much memory this process may still take.
#pragma once

#include <cstdint>

namespace minim {

// The smaller of what the kernel calls available and what is left under the process's control groups.
// UINT64_MAX where neither can be read.
uint64_t available_memory_bytes() noexcept;

// What the process may lock in memory without a privilege, UINT64_MAX where there is no limit, and what it has locked.
struct LockLimit {
    uint64_t limit = UINT64_MAX;
    uint64_t locked = 0;

    uint64_t left() const noexcept {
        return limit == UINT64_MAX ? limit : limit - (limit < locked ? limit : locked);
    }
};
LockLimit lock_limit() noexcept;

// Of the machine; 0 where it cannot be read.
uint64_t total_memory_bytes() noexcept;

}  // namespace minim
