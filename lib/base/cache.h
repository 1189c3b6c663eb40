// The processor's caches.
#pragma once

#include <cstddef>
#include <span>

namespace minim {

// Writes these bytes back and drops them from all caches, so that the next read comes from memory. Where no program can
// do that nothing happens.
void evict_from_caches(std::span<const std::byte> bytes) noexcept;

}  // namespace minim
