// A batch on its way to the device: positions, page tables and the tiles that attention cuts it into.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/stream.h"

namespace minim::cuda {

// Bytes of the tables of n rows whose sequences have n_pages pages.
int64_t batch_bytes(int64_t n, int64_t n_pages);

// Whether the stream knows this batch already.
bool is_known(const Stream& stream, std::span<const int32_t> ids, std::span<const backend::KvRow> rows);

// Lays the tables out in the stream's host memory and says where they will lie on the device. Returns their bytes.
int64_t lay_out(Stream& stream, std::span<const int32_t> ids, std::span<const backend::KvRow> rows,
                int64_t n_head, int64_t n_head_kv);

}  // namespace minim::cuda
