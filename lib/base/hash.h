// SPDX-License-Identifier: Apache-2.0
// A fast hash of bytes, which detects altered data and distinguishes models. It is not a signature: an attacker can
// construct two inputs with the same hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace minim {

// Returns the hash (XXH3, 64 bits). It is stored in files, so it is the same on every machine and in every version.
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
