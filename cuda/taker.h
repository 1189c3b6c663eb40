// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/checked.h"

namespace minim::cuda {

// Takes consecutive arrays out of a block. If the block is null, only bytes() is meaningful.
class Taker {
  public:
    explicit Taker(std::byte* block) : block_(block), next_(block) {}

    template <typename X>
    void take(X*& pointer, int64_t count) {
        pointer = reinterpret_cast<X*>(next_);
        next_ += align_up(static_cast<uint64_t>(count) * sizeof(X), k_alignment);
    }
    uint64_t bytes() const { return static_cast<uint64_t>(next_ - block_); }

  private:
    static constexpr uint64_t k_alignment = 256;
    std::byte* block_;
    std::byte* next_;
};

}  // namespace minim::cuda
