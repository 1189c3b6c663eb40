// SPDX-License-Identifier: Apache-2.0
// Measures how fast threads read memory when they do nothing else: what kernels are compared with, and what plans predict from.
#pragma once

#include <cstdint>

#include "base/buffer.h"
#include "base/thread_pool.h"

namespace minim {

class ReadBandwidth {
  public:
    // `bytes`: whole MiB. `pool` must outlive it. Throws out_of_memory.
    ReadBandwidth(const ThreadPool& pool, uint64_t bytes);

    // Returns the bytes a second of one pass over all of it. They are taken out of the caches first, where the CPU can do that.
    double measure() const;

  private:
    const ThreadPool& pool_;
    Buffer bytes_;
};

}  // namespace minim
