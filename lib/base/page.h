// The size of a page: memory comes in whole ones, and what a processor fetches ahead of its own accord ends with one.
#pragma once

#include <cstdint>

namespace minim {

inline constexpr uint64_t k_page_bytes = 4096;

}  // namespace minim
