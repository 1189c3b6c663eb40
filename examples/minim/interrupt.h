// Ctrl-C: the first one cancels the library's work, so that what was generated is kept and summed up; the
// second one ends the process at once.
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

}  // namespace cli
