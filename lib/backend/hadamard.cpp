#include "backend/hadamard.h"

#include <cmath>

namespace minim::backend {

void hadamard(float* x, int64_t n) noexcept {
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

void hadamard_rows(float* x, int64_t n_rows, int64_t n) noexcept {
    for (int64_t row = 0; row < n_rows; ++row) hadamard(x + row * n, n);
}

}  // namespace minim::backend
