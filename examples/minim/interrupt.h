// SPDX-License-Identifier: Apache-2.0
// Ctrl-C: the first one cancels the library's work, so that what was generated is kept and summed up; the
// second one ends the process at once. In a chat it ends the answer alone, or the line that is being typed.
#pragma once

#include "minim/minim.hpp"

namespace cli {

constexpr int k_exit_interrupted = 130;  // as shells report it: 128 + SIGINT

// While it lives, SIGINT triggers `cancel`.
class CancelOnInterrupt {
  public:
    explicit CancelOnInterrupt(const minim::Cancel& cancel);
    ~CancelOnInterrupt();
    CancelOnInterrupt(const CancelOnInterrupt&) = delete;
    CancelOnInterrupt& operator=(const CancelOnInterrupt&) = delete;
};

// While it lives, SIGINT outside of a CancelOnInterrupt makes fd() readable, and does not end the process.
class SurviveInterrupts {
  public:
    // Throws std::system_error if there is no pipe.
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
