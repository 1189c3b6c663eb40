// SPDX-License-Identifier: Apache-2.0
// How a rank waits for another one within a step: it spins first, since answers come within microseconds, and sleeps if the other
// rank has no core to compute on, or computes for long.
#pragma once

#include <chrono>
#include <thread>

namespace minim::runtime {

class Waiting {
  public:
    // Starts again: the other rank has made progress.
    void restart() noexcept { start_ = Clock::now(); }

    // Pauses for a moment.
    void pause() const {
        const Clock::duration waited = Clock::now() - start_;
        if (waited >= k_yield) {
            std::this_thread::sleep_for(k_nap);
        } else if (waited >= k_spin) {
            std::this_thread::yield();
        }
    }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::microseconds k_spin{20};
    static constexpr std::chrono::microseconds k_yield{2000};
    static constexpr std::chrono::microseconds k_nap{50};

    Clock::time_point start_ = Clock::now();
};

}  // namespace minim::runtime
