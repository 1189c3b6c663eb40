// SPDX-License-Identifier: Apache-2.0
// The size of a page: memory is mapped in whole pages, and the hardware prefetcher stops at the end of one.
#pragma once

#include <cstdint>

namespace minim {

// The smallest page of all systems. Use it for layouts only.
inline constexpr uint64_t k_page_bytes = 4096;

// Returns the size of this system's pages: 4, 16 or 64 KiB on aarch64.
uint64_t system_page_bytes() noexcept;

}  // namespace minim
