// SPDX-License-Identifier: Apache-2.0
// The caches of the CPU.
#pragma once

#include <cstddef>
#include <span>

namespace minim {

// Writes these bytes back and drops them from all caches, so that the next read comes from memory. Does nothing on
// architectures without an instruction for it.
void evict_from_caches(std::span<const std::byte> bytes) noexcept;

}  // namespace minim
