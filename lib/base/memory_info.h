// SPDX-License-Identifier: Apache-2.0
// The memory that this process may still allocate.
#pragma once

#include <cstdint>

namespace minim {

// Returns the smallest of three numbers: the kernel's available memory, the bytes left under the limits of the process's control
// groups, and the bytes left of its address space. Returns UINT64_MAX if none can be read.
uint64_t available_memory_bytes() noexcept;

// Returns the bytes left under RLIMIT_AS (ulimit -v); UINT64_MAX if there is no limit.
uint64_t available_address_space_bytes() noexcept;

// Bytes that the process may lock without privileges (UINT64_MAX: no limit), and bytes that it has locked.
struct LockLimit {
    uint64_t limit = UINT64_MAX;
    uint64_t locked = 0;

    uint64_t left() const noexcept {
        return limit == UINT64_MAX ? limit : limit - (limit < locked ? limit : locked);
    }
};
LockLimit lock_limit() noexcept;

// Returns the memory of the machine; 0 if it cannot be read.
uint64_t total_memory_bytes() noexcept;

}  // namespace minim
