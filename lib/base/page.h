// SPDX-License-Identifier: Apache-2.0
// The size of a page: memory is mapped in whole pages, and the hardware prefetcher stops at the end of one.
#pragma once

#include <cstdint>

namespace minim {

inline constexpr uint64_t k_page_bytes = 4096;

}  // namespace minim
