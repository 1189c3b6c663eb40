// SPDX-License-Identifier: Apache-2.0
// FP4 E2M1 codes and E8M0 scales, the parts of the MX and NVFP4 formats. Code bits 0-2 are 0, 0.5, 1, 1.5, 2,
// 3, 4, 6 and bit 3 is the sign. Integer kernels take the doubled values and halve the scale: both are exact.
// Pinned by tests/unit/format/e4m3_test.cpp.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "base/platform.h"
#include "format/grids.h"

namespace minim {

// Returns twice the value of a code, a whole number from -12 to 12.
MINIM_HOST_DEVICE int e2m1_doubled(int code) {
    return e2m1_doubled_values()[code & 15];
}

MINIM_HOST_DEVICE float e2m1_to_float(int code) {
    return 0.5F * static_cast<float>(e2m1_doubled(code));
}

// Returns 2^(code - 127). Code 0 is a subnormal float; code 255 is NaN by the MX standard.
MINIM_HOST_DEVICE float e8m0_to_float(uint8_t code) {
    if (code == 0) return bits_to_float(0x00400000U);
    if (code == 255) return bits_to_float(0x7FC00000U);
    return bits_to_float(static_cast<uint32_t>(code) << 23);
}

// Returns 2^(code - 128), the scale for doubled E2M1 values. Finite for every code: in GGUF, 255 has no special
// meaning.
MINIM_HOST_DEVICE float e8m0_half_to_float(uint8_t code) {
    if (code < 2) return bits_to_float(0x00200000U << code);
    return bits_to_float((code - 1U) << 23);
}

}  // namespace minim
