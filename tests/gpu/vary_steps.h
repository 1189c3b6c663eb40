// SPDX-License-Identifier: Apache-2.0
// How the stress test makes its steps differ in what must not matter.
#pragma once

#include <cstdint>

namespace minim::test {

// Called before step `step` of the only text. Nothing to do on a GPU, whose steps differ anyway.
void vary_step(int64_t step);

}  // namespace minim::test
