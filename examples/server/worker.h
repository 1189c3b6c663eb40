// SPDX-License-Identifier: Apache-2.0
// One thread for the slow work before an answer begins: reading JSON, rendering, tokenising, compiling schemas.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace server {

class Worker {
  public:
    Worker() : thread_([this] { run(); }) {}
    // Finishes the task under way and drops the others.
    ~Worker() {
        {
            const std::lock_guard lock(mutex_);
            is_ending_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    // Any thread. Tasks run one after another; they must not throw.
    void post(std::function<void()> task) {
        {
            const std::lock_guard lock(mutex_);
            tasks_.push_back(std::move(task));
        }
        changed_.notify_one();
    }

  private:
    void run() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return is_ending_ || !tasks_.empty(); });
            if (is_ending_) return;
            std::function<void()> task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            task();
            task = nullptr;
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    bool is_ending_ = false;
    std::thread thread_;
};

}  // namespace server
