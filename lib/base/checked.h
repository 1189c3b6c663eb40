// SPDX-License-Identifier: Apache-2.0
// Arithmetic on sizes that come from files. Functions return false if the result does not fit.
#pragma once

#include <cstdint>

namespace minim {

template <typename T>
[[nodiscard]] constexpr bool checked_mul(T a, T b, T& result) noexcept {
    return !__builtin_mul_overflow(a, b, &result);
}

template <typename T>
[[nodiscard]] constexpr bool checked_add(T a, T b, T& result) noexcept {
    return !__builtin_add_overflow(a, b, &result);
}

// Returns the smallest multiple of `alignment` (a power of two) that is not below `value`.
constexpr uint64_t align_up(uint64_t value, uint64_t alignment) noexcept {
    return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace minim
