// SPDX-License-Identifier: Apache-2.0
// The reference of every benchmark here: how fast the same threads read memory when they do nothing else.
#pragma once

#include "base/buffer.h"
#include "base/thread_pool.h"

namespace minim::bench {

class Bandwidth {
  public:
    // Takes 512 MiB, more than any last-level cache. Throws out_of_memory.
    explicit Bandwidth(const ThreadPool& pool);

    // Returns the bytes a second of one pass over all of it; about 50 ms.
    double measure() const;

  private:
    const ThreadPool& pool_;
    Buffer bytes_;
};

}  // namespace minim::bench
