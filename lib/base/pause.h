// SPDX-License-Identifier: Apache-2.0
// Waiting for another thread without sleeping.
#pragma once

#include <chrono>

namespace minim {

// Lets the core's other hyper-thread work for a moment, and keeps a loop of polls from filling the core's queues: 10 to 50 ns.
inline void pause_core() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");  // YIELD does nothing on most cores
#endif
}

// A time limit for a loop of polls. Pauses differ between CPUs by a factor of ten, so the loop is limited by time, not by their number.
class Spin {
  public:
    explicit Spin(std::chrono::steady_clock::duration limit) noexcept : limit_(limit) {}

    // Pauses briefly; returns false, at once, when the time since the first call has passed. Call it after each poll that failed.
    bool pause() noexcept {
        if (is_over_) return false;
        if (n_polls_++ % k_polls_between_looks == 0) {
            const auto now = std::chrono::steady_clock::now();
            if (n_polls_ == 1) end_ = now + limit_;
            is_over_ = now >= end_;
            if (is_over_) return false;
        }
        pause_core();
        return true;
    }

  private:
    static constexpr int k_polls_between_looks = 16;

    std::chrono::steady_clock::duration limit_;
    std::chrono::steady_clock::time_point end_ = {};
    int n_polls_ = 0;
    bool is_over_ = false;
};

}  // namespace minim
