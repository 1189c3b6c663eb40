// SPDX-License-Identifier: Apache-2.0
// A queue of tasks that a thread of its own runs one after the other.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace minim::sim {

class Queue {
  public:
    Queue() : thread_([this] { run(); }) {}
    // Runs the remaining tasks first.
    ~Queue();
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    void push(std::function<void()> task);
    void wait();  // for all that was pushed

  private:
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    bool busy_ = false;
    bool ends_ = false;
    std::thread thread_;
};

}  // namespace minim::sim
