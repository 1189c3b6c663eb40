// How much memory this process may still take.
#pragma once

#include <cstdint>

namespace minim {

// The least of what the kernel calls available, what is left under the process's control groups, and what is left of its address
// space. UINT64_MAX where none can be read.
uint64_t available_memory_bytes() noexcept;

// Left under RLIMIT_AS (ulimit -v); UINT64_MAX where there is no limit.
uint64_t available_address_space_bytes() noexcept;

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
