// SPDX-License-Identifier: Apache-2.0
#include "backend/hadamard.h"

namespace minim::backend {

void hadamard_rows(float* x, int64_t n_rows, int64_t n) noexcept {
    for (int64_t row = 0; row < n_rows; ++row) hadamard(x + row * n, n);
}

}  // namespace minim::backend
