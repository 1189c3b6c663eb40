// A fast hash of bytes: tells altered data from what was written, and one model from another. No protection
// against somebody who wants two inputs to agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace minim {

// The same value on every machine and in every version: it is stored in files (XXH3, 64 bits).
uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed = 0) noexcept;

// For unordered containers whose keys are lists of plain values.
template <typename T>
struct VectorHash {
    static_assert(std::has_unique_object_representations_v<T>);
    size_t operator()(const std::vector<T>& values) const noexcept {
        return hash_bytes(std::as_bytes(std::span(values)));
    }
};

}  // namespace minim
