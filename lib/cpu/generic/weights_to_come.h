// Where a kernel reads next, to fetch it meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels.h"

namespace minim::cpu::generic {

// The weights of a call and those after it, as one stretch of memory.
struct WeightsToCome {
    const std::byte* end;
    const std::byte* next;

    explicit WeightsToCome(const LinearArgs& args)
        : end(args.weight + args.n_rows * args.row_bytes), next(args.next_weight) {}
    // So many bytes further on, or from the start of the next weights where that passes the end of these; the block
    // itself, which is there already, if there are none.
    const std::byte* after(const std::byte* block, int64_t bytes) const {
        if (end - block > bytes) return block + bytes;
        return next == nullptr ? block : next + (bytes - (end - block));
    }
};

}  // namespace minim::cpu::generic
