// SPDX-License-Identifier: Apache-2.0
// A thread that runs tasks in their order: one reads ahead of the encoders, another one writes behind them. Signals are blocked in it, so
// a write beyond RLIMIT_FSIZE fails with EFBIG and does not end the process.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>

namespace minim::convert {

class TaskThread {
  public:
    // Throws out_of_memory.
    explicit TaskThread(std::string_view name);
    // Waits for the task that is running. Those that have not begun are dropped.
    ~TaskThread();
    TaskThread(const TaskThread&) = delete;
    TaskThread& operator=(const TaskThread&) = delete;

    // Returns the number of the task, from 1. A task that throws stops the thread: later ones do not run.
    uint64_t submit(std::function<void()> task);
    // Blocks until a task is done. Throws what a task has thrown. 0: returns at once.
    void wait(uint64_t task);
    // Runs one task and waits for it.
    void run(std::function<void()> task) { wait(submit(std::move(task))); }

  private:
    void work();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    uint64_t n_submitted_ = 0;
    uint64_t n_done_ = 0;
    bool ends_ = false;
    std::exception_ptr error_;
    std::thread thread_;
};

}  // namespace minim::convert
