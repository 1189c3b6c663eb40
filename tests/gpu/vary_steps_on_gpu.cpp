// SPDX-License-Identifier: Apache-2.0
#include "gpu/vary_steps.h"

namespace minim::test {

void vary_step(int64_t) {}

}  // namespace minim::test
