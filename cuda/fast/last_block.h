// SPDX-License-Identifier: Apache-2.0
// Finds the block of threads that is the last of several to arrive: it continues with the results of all of them.
#pragma once

#include <cstdint>

#include "cuda/fast/device.h"

namespace minim::cuda::fast {

// Every thread of each of n_blocks blocks calls it once. Returns true in the last block, which sees everything that
// the threads of all blocks have written before. `arrived` is 0 before and afterwards; `is_last` is in shared memory.
template <class T>
MINIM_DEVICE bool is_last_block(T& t, int32_t* arrived, int32_t n_blocks, int32_t* is_last) {
    t.sync();
    if (t.index() == 0) {
        t.fence();
        *is_last = t.add_to(arrived, 1) == n_blocks - 1 ? 1 : 0;
        if (*is_last != 0) {
            *arrived = 0;
            t.fence();
        }
    }
    t.sync();
    return *is_last != 0;
}

}  // namespace minim::cuda::fast
