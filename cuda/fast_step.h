// SPDX-License-Identifier: Apache-2.0
// How a list of operations becomes kernels: passes over the list, then the kernels of each operation, and the rows and
// matrices that the exact kernels compute. Only starts kernels; FastOperations checks for errors.
#pragma once

#include "backend/backend.h"
#include "cuda/operation_list.h"
#include "cuda/stream.h"

namespace minim::cuda::fast {

// Returns the number of FastWork::arrived counters that its steps need.
int64_t n_arrival_counters(const backend::StepLimits& limits);

// Requires that the stream has the batch.
AttendCall attend_call(const cuda::Stream& stream, const Cache& cache, const backend::AttendArgs& args);

// Returns whether the operation is a norm that the operation after it may compute.
bool may_fold(const cuda::Stream& stream, const Operation& operation);
// A pass: the norm of one row becomes a part of the first kernel of the operation after it, if that kernel can do it.
void fold_norms(cuda::Stream& stream);
// A pass: an operation on packed weights finds the blocks of its rows where an earlier one has left them, or makes them.
void find_inputs(cuda::Stream& stream);

void launch_operation(cuda::Stream& stream, const Operation& operation);

}  // namespace minim::cuda::fast
