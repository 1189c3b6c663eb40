// SPDX-License-Identifier: Apache-2.0
#include "gpu/emulated_thread.h"
#include "gpu/vary_steps.h"

namespace minim::test {

// All orders of threads, copies, kernels and blocks in eight steps; step 0 as usual.
void vary_step(int64_t step) {
    emulation() = {.backwards = step % 2 == 1,
                   .copies_at_once = step / 2 % 2 == 1,
                   .starts_early = step / 4 % 2 == 1,
                   .seed = static_cast<uint32_t>(step)};
}

}  // namespace minim::test
