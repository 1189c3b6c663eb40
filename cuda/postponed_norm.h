// SPDX-License-Identifier: Apache-2.0
// The norm of one row as a part of the kernel that needs it. postpone_norm() keeps such a norm in the stream instead of launching it.
// The next operation is linear_tasks() or route_rows(), which take the norm or launch it first; before any other one, call
// launch_postponed(). Until then x is not written and h is not read.
#pragma once

#include <span>

#include "backend/backend.h"
#include "cuda/stream.h"

namespace minim::cuda::fast {

// Returns false, and does nothing, if the norm cannot be a part of another kernel.
bool postpone_norm(cuda::Stream& stream, const float* x, int64_t n, const backend::Vector& weight, float eps,
                   float* h);
// Launches the norm that was postponed, if there is one.
void launch_postponed(cuda::Stream& stream);

// Returns whether the stream's postponed norm makes the n rows of h.
bool is_postponed(const cuda::Stream& stream, const float* h, int64_t n, int64_t cols);
// Returns whether the kernel of the first tasks' products computes the postponed norm.
bool takes_norm(const cuda::Stream& stream, const float* h, int64_t n,
                std::span<const backend::LinearTask> tasks);
// Returns the norm for the kernel that computes it. From then on h and its quantised form are as after norm_rows().
NormRow take_norm(cuda::Stream& stream);

inline bool overlap(const float* a, int64_t n_a, const float* b, int64_t n_b) {
    return a < b + n_b && b < a + n_a;
}

}  // namespace minim::cuda::fast
