// SPDX-License-Identifier: Apache-2.0
// The Walsh-Hadamard transform, scaled so that it is a rotation and its own inverse. Keys with few bits are rotated,
// and queries with them: dot products do not change, and a large component, which would set the scale of its whole
// block, is spread over all components.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/platform.h"

namespace minim::backend {

// Transforms n numbers; n is a power of two. Same bits on every machine.
MINIM_HOST_DEVICE void hadamard(float* x, int64_t n) noexcept {
    for (int64_t half = 1; half < n; half *= 2) {
        for (int64_t first = 0; first < n; first += 2 * half) {
            for (int64_t i = first; i < first + half; ++i) {
                const float a = x[i];
                const float b = x[i + half];
                x[i] = a + b;
                x[i + half] = a - b;
            }
        }
    }
    const float scale = 1.0F / std::sqrt(static_cast<float>(n));
    for (int64_t i = 0; i < n; ++i) x[i] *= scale;
}

// Transforms each of `n_rows` rows.
void hadamard_rows(float* x, int64_t n_rows, int64_t n) noexcept;

}  // namespace minim::backend
