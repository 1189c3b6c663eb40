// SPDX-License-Identifier: Apache-2.0
// Counts the bytes of a load and reports them to its progress callback.
#pragma once

#include <cstdint>
#include <functional>

#include "base/cancel.h"

namespace minim::checkpoint {

// Called on the loading thread with the bytes done (never decreasing) and the total: at the start, at least every 4
// MiB, and at the end. Returning false cancels the load.
using Progress = std::function<bool(uint64_t done, uint64_t total)>;

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
