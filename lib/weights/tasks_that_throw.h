// SPDX-License-Identifier: Apache-2.0
// Runs tasks that may throw on all threads of the host: the first exception is thrown again when the job is done.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "backend/host_device.h"

namespace minim::weights {

class FirstError {
  public:
    // Runs a task. Does nothing once a task has failed.
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
    // Throws the first exception, if there is one. Call it once all tasks are done.
    void rethrow() const {
        if (error_ != nullptr) std::rethrow_exception(error_);
    }

  private:
    std::atomic<bool> failed_{false};
    std::mutex mutex_;
    std::exception_ptr error_;
};

// As HostDevice::run_tasks: calls task(i, thread) for each i in [0, n_tasks), on the calling thread if `host` is null.
// Tasks that have not begun when one fails are left out.
template <typename Task>
void run_tasks_that_throw(const backend::HostDevice* host, int64_t n_tasks, const Task& task) {
    FirstError error;
    const auto run = [&](int64_t i, int32_t thread) { error.run([&] { task(i, thread); }); };
    if (host != nullptr) {
        host->run_tasks(n_tasks, run);
    } else {
        for (int64_t i = 0; i < n_tasks; ++i) run(i, 0);
    }
    error.rethrow();
}

}  // namespace minim::weights
