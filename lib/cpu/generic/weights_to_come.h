// SPDX-License-Identifier: Apache-2.0
// The addresses that a kernel reads next, for prefetching.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels.h"

namespace minim::cpu::generic {

// The weights of a call and those of the next one, seen as one range of memory.
struct WeightsToCome {
    const std::byte* end;
    const std::byte* next;

    explicit WeightsToCome(const LinearArgs& args)
        : end(args.weight + args.n_rows * args.row_bytes), next(args.next_weight) {}
    // Returns the address `bytes` after the block, continued in the next weights if that is past the end of the current ones.
    // Without next weights, returns the block itself, which is in the cache already.
    const std::byte* after(const std::byte* block, int64_t bytes) const {
        if (end - block > bytes) return block + bytes;
        return next == nullptr ? block : next + (bytes - (end - block));
    }
};

}  // namespace minim::cpu::generic
