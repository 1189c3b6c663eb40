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

// Returns the number of FastWork::chosen entries and of FastWork::unpacked weights that its steps need.
int64_t n_chosen_places(const backend::StepLimits& limits);
int64_t n_unpacked_weights(const backend::StepLimits& limits);
// Returns the number of tiles of slots that the stream kernel needs.
int64_t most_stream_tiles(const backend::StepLimits& limits);

// Returns whether the vendor's library multiplies the packed matrix, unpacked in FastWork::unpacked.
bool is_unpacked(const cuda::Stream& stream, const backend::LinearTask& task, int64_t n);

// Return whether a kernel of the operation reads its rows in 8-bit blocks.
bool reads_blocks(const cuda::Stream& stream, const LinearCall& call);
bool reads_blocks(const cuda::Stream& stream, const ExpertsCall& call);

// Requires that the stream has the batch.
AttendCall attend_call(const cuda::Stream& stream, const Cache& cache, const backend::AttendArgs& args);
// The same for rows that attend to chosen blocks, in FastWork::chosen_pages.
AttendCall attend_chosen_call(const cuda::Stream& stream, const Cache& cache, const backend::AttendArgs& args,
                              const exact::Index& index, const exact::IndexRows& rows);

// Returns whether the operation is a norm that the operation after it may compute.
bool may_fold(const cuda::Stream& stream, const Operation& operation);
// A pass: the norm of one row becomes a part of the first kernel of the operation after it, if that kernel can do it.
void fold_norms(cuda::Stream& stream);
// A pass: a choice of experts copies their entries of the layer's table for the operation after it, if its kernels read them.
void share_places(cuda::Stream& stream);
// Returns whether they do.
bool reads_chosen(const cuda::Stream& stream, const ExpertsCall& call);
// A pass: an operation on packed weights finds the blocks of its rows where an earlier one has left them, or makes them.
void find_inputs(cuda::Stream& stream);

void launch_operation(cuda::Stream& stream, const Operation& operation);

}  // namespace minim::cuda::fast
