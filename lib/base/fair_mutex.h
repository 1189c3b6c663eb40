// SPDX-License-Identifier: Apache-2.0
// A mutex that no thread has to wait for much longer than k_patience while others lock it again and again for short times. A
// std::mutex does not ensure that: a thread that unlocks it and locks it again a microsecond later is there before the one that
// waits has woken, which takes 50 us. Handing the mutex over each time would cost those 50 us each time. So who comes first has
// it, but a thread that has waited for k_patience is next.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace minim {

class FairMutex {
  public:
    static constexpr std::chrono::milliseconds k_patience{2};

    void lock() {
        std::unique_lock state(state_);
        if (is_locked_ || n_overdue_ > 0) {
            ++n_waiting_;
            const auto is_free = [&] { return !is_locked_ && n_overdue_ == 0; };
            const bool came_first = is_free_.wait_for(state, k_patience, is_free);
            --n_waiting_;
            if (!came_first) {
                ++n_overdue_;
                is_free_for_overdue_.wait(state, [&] { return !is_locked_; });
                --n_overdue_;
            }
        }
        is_locked_ = true;
    }

    void unlock() {
        const std::lock_guard state(state_);
        is_locked_ = false;
        if (n_overdue_ > 0) {
            is_free_for_overdue_.notify_one();
        } else if (n_waiting_ > 0) {
            is_free_.notify_one();
        }
    }

  private:
    std::mutex state_;  // of what follows
    bool is_locked_ = false;
    int32_t n_waiting_ = 0;  // threads that have not waited for k_patience yet
    int32_t n_overdue_ = 0;  // threads that have
    std::condition_variable is_free_;
    std::condition_variable is_free_for_overdue_;
};

}  // namespace minim
