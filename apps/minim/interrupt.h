// SPDX-License-Identifier: Apache-2.0
// Handles Ctrl-C. The first one cancels the library's work; the text generated so far and its summary are still printed. The
// second one ends the process at once. In a chat, Ctrl-C only ends the answer, or discards the line that is being typed.
#pragma once

#include "minim/minim.hpp"

namespace cli {

constexpr int k_exit_interrupted = 130;  // as shells report it: 128 + SIGINT

// While this object exists, SIGINT triggers `cancel`.
class CancelOnInterrupt {
  public:
    explicit CancelOnInterrupt(const minim::Cancel& cancel);
    ~CancelOnInterrupt();
    CancelOnInterrupt(const CancelOnInterrupt&) = delete;
    CancelOnInterrupt& operator=(const CancelOnInterrupt&) = delete;
};

// Returns whether a SIGINT has triggered a `cancel` so far. For work that ends between steps, not in one.
bool was_interrupted() noexcept;

// While this object exists, SIGINT outside of a CancelOnInterrupt makes fd() readable, and does not end the process.
class SurviveInterrupts {
  public:
    // Throws std::system_error if a pipe cannot be created.
    SurviveInterrupts();
    ~SurviveInterrupts();
    SurviveInterrupts(const SurviveInterrupts&) = delete;
    SurviveInterrupts& operator=(const SurviveInterrupts&) = delete;

    int fd() const noexcept { return read_end_; }
    void clear() noexcept;

  private:
    int read_end_ = -1;
    int write_end_ = -1;
};

}  // namespace cli
