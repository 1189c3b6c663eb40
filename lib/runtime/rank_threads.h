// SPDX-License-Identifier: Apache-2.0
// The threads of a process's ranks. They last as long as the model, and sleep between steps.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace minim::runtime {

class RankThreads {
  public:
    // Starts n - 1 threads: the caller of run() is the first one. Throws out_of_memory.
    explicit RankThreads(size_t n);
    ~RankThreads();
    RankThreads(const RankThreads&) = delete;
    RankThreads& operator=(const RankThreads&) = delete;

    // Calls task(0) .. task(n - 1), each on its thread, and returns when all have returned. They must not throw. One caller at
    // a time.
    void run(const std::function<void(size_t)>& task);

  private:
    void work(size_t rank);
    void end() noexcept;

    std::mutex mutex_;
    std::condition_variable begun_, ended_;
    const std::function<void(size_t)>* task_ = nullptr;
    uint64_t n_runs_ = 0;
    size_t n_running_ = 0;
    bool is_ending_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace minim::runtime
