// How much memory this process may still take.
#pragma once

#include <cstdint>

namespace minim {

// The smaller of what the kernel calls available and what is left under the process's control groups.
// UINT64_MAX where neither can be read.
uint64_t available_memory_bytes() noexcept;

// Of the machine; 0 where it cannot be read.
uint64_t total_memory_bytes() noexcept;

}  // namespace minim
