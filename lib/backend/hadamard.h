// The Walsh-Hadamard transform, scaled so that it is a rotation and its own inverse. Keys that are kept in few
// bits are rotated, and queries with them: dot products stay as they are, and what one component has too much
// of, which would set the scale of its whole block, is spread over all of them.
#pragma once

#include <cstdint>

namespace minim::backend {

// n is a power of two. The same bits on every machine.
void hadamard(float* x, int64_t n) noexcept;

// Each of `n_rows` rows by itself.
void hadamard_rows(float* x, int64_t n_rows, int64_t n) noexcept;

}  // namespace minim::backend
