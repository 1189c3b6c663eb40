// A fast hash of bytes: tells altered data from what was written, and one model from another. No protection
// against somebody who wants two inputs to agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace minim {

// The same value on every machine and in every version: it is stored in files (XXH3, 64 bits).
uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed = 0) noexcept;

}  // namespace minim
