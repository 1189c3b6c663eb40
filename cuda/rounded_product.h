// SPDX-License-Identifier: Apache-2.0
// A product that no compiler fuses with the addition after it.
#pragma once

#include "base/platform.h"

namespace minim::cuda {

// a * b rounded as on the host.
MINIM_HOST_DEVICE float rounded_product(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

}  // namespace minim::cuda
