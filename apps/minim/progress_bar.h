// SPDX-License-Identifier: Apache-2.0
// One line on a terminal that shows how far the loading is; nothing if standard error is not a terminal.
#pragma once

#include <cstdint>

namespace cli {

class ProgressBar {
  public:
    ProgressBar();
    ~ProgressBar();  // erases the line
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    void show(uint64_t done_bytes, uint64_t total_bytes);

  private:
    bool visible_;
    uint64_t shown_percent_ = UINT64_MAX;
};

}  // namespace cli
