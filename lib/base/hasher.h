// SPDX-License-Identifier: Apache-2.0
// The hash of hash.h, of bytes that arrive in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace minim {

// For one thread at a time.
class Hasher {
  public:
    Hasher();
    ~Hasher();
    Hasher(const Hasher&) = delete;
    Hasher& operator=(const Hasher&) = delete;

    void reset() noexcept;
    void add(std::span<const std::byte> bytes) noexcept;
    uint64_t value() const noexcept;  // as hash_bytes() of all bytes since reset(), without seed

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace minim
