// SPDX-License-Identifier: Apache-2.0
// Counts the bytes of a load and reports them to its progress callback.
#pragma once

#include <cstdint>

#include "base/cancel.h"
#include "checkpoint/load.h"

namespace minim::checkpoint {

// Bytes between two checks of the cancel token: 40 ms at 100 MB/s.
inline constexpr uint64_t k_load_block_bytes = uint64_t{4} << 20;

// Each call throws cancelled if the token is triggered or the callback returns false.
class LoadCounter {
  public:
    LoadCounter(uint64_t total, const Progress& progress, const CancelToken* cancel);
    void add(uint64_t bytes);

  private:
    void report();

    uint64_t done_ = 0;
    uint64_t reported_ = 0;
    uint64_t total_;
    const Progress& progress_;
    const CancelToken* cancel_;
};

}  // namespace minim::checkpoint
