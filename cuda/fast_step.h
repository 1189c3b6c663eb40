// SPDX-License-Identifier: Apache-2.0
// The operations of a step on packed weights: chooses their kernels, and the rows and matrices that the exact kernels
// compute. Only starts kernels; the backend checks for errors.
#pragma once

#include "backend/backend.h"
#include "cuda/stream.h"

namespace minim::cuda::fast {

// Returns the number of Stream::arrived counters that its steps need.
int64_t n_arrival_counters(const backend::StepLimits& limits);

// Invalidates the stream's quantised inputs.
inline void forget_input(cuda::Stream& stream) {
    stream.quantized = {};
}

void norm_rows(cuda::Stream& stream, const float* x, int64_t n, const backend::Vector& weight, float eps,
               float* h);

void linear_tasks(cuda::Stream& stream, const float* h, int64_t n,
                  std::span<const backend::LinearTask> tasks);

// Requires that the stream has the batch.
void attend_rows(cuda::Stream& stream, const exact::Cache& cache, const backend::AttendArgs& args);

void route_rows(cuda::Stream& stream, const float* h, int64_t n, const backend::Matrix& router,
                const backend::Vector& bias, int64_t n_used, int32_t* ids, float* gates);

void add_experts(cuda::Stream& stream, const float* h, int64_t n, const int32_t* ids, const float* gates,
                 int64_t n_used, const backend::ExpertWeights& weights, float* y);

// Computes out [n * n_used, hidden] of the slots whose expert is here; the outputs of the other slots stay unchanged.
void make_slots(cuda::Stream& stream, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                const backend::ExpertWeights& weights, float* out);

}  // namespace minim::cuda::fast
