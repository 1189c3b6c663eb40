// SPDX-License-Identifier: Apache-2.0
// Copies a batch to the device: positions, page tables and the tiles that attention cuts it into.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/stream.h"

namespace minim::cuda {

// Returns the bytes of the tables of n rows whose sequences have n_pages pages.
int64_t batch_bytes(int64_t n, int64_t n_pages);

// Returns whether the stream has this batch already.
bool is_known(const Stream& stream, std::span<const int32_t> ids, std::span<const backend::KvRow> rows);

// Writes the tables to the stream's host memory, and sets their addresses on the device. Returns their bytes.
int64_t lay_out(Stream& stream, std::span<const int32_t> ids, std::span<const backend::KvRow> rows,
                int64_t n_head, int64_t n_head_kv);

}  // namespace minim::cuda
