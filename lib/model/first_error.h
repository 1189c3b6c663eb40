// Tasks of a job on several threads that may throw: the first exception is thrown again when the job is done.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>

namespace minim::model {

class FirstError {
  public:
    // Does nothing once a task has failed.
    template <typename Task>
    void run(const Task& task) noexcept {
        if (failed_.load(std::memory_order_relaxed)) return;
        try {
            task();
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (error_ == nullptr) error_ = std::current_exception();
            failed_.store(true, std::memory_order_relaxed);
        }
    }
    // Once all tasks are done.
    void rethrow() const {
        if (error_ != nullptr) std::rethrow_exception(error_);
    }

  private:
    std::atomic<bool> failed_{false};
    std::mutex mutex_;
    std::exception_ptr error_;
};

}  // namespace minim::model
