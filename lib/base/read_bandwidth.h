// SPDX-License-Identifier: Apache-2.0
// Measures how fast threads read memory when they do nothing else. Kernels are compared with this bandwidth, and plans predict
// speeds from it.
#pragma once

#include <cstdint>

#include "base/buffer.h"
#include "base/thread_pool.h"

namespace minim {

class ReadBandwidth {
  public:
    // `bytes`: whole MiB. `pool` must outlive this object. Throws out_of_memory.
    ReadBandwidth(const ThreadPool& pool, uint64_t bytes);

    // Returns the bytes a second of one pass over the whole buffer. Evicts its bytes from the caches first, if the CPU can do
    // that.
    double measure() const;

  private:
    const ThreadPool& pool_;
    Buffer bytes_;
};

}  // namespace minim
