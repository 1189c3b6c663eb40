// SPDX-License-Identifier: Apache-2.0
// The threaded CPU backend: linears on packed weights with quantised inputs, vectorised for the detected or requested
// instruction set. A row's result depends only on the row: not on batch composition, chunking, the number of threads or
// the instruction set.
#pragma once

#include <memory>

#include "backend/host_device.h"
#include "base/cpu_features.h"
#include "base/host_memory.h"
#include "base/thread_pool.h"

namespace minim::cpu {

// Whether products prefetch weights by instructions: as measured on this kind of CPU (Machine::needs_requests; off where nobody has
// measured), or as a benchmark on another kind wants it.
enum class Prefetch : int32_t { as_measured = 0, off = 1, on = 2 };

// Creates the CPU backend. Steps of one row run on `decode_pool`; other steps and packing run on `pool`. Both pools must outlive
// the backend. Throws unsupported for a level that this machine does not have.
std::unique_ptr<backend::HostDevice> make_cpu_backend(const ThreadPool& pool, const ThreadPool& decode_pool,
                                                      CpuLevel level, HostMemory memory = {},
                                                      Prefetch prefetch = Prefetch::as_measured);
std::unique_ptr<backend::HostDevice> make_cpu_backend(const ThreadPool& pool, CpuLevel level);

}  // namespace minim::cpu
