// SPDX-License-Identifier: Apache-2.0
// Threads for the slow work before an answer begins: reading JSON, rendering, tokenising, compiling constraints. One of them takes all
// requests in the order in which they came. The others take over those that have waited for some milliseconds, so that a slow
// request does not hold up the ones behind it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace server {

// What is known of the client of a task. The loop writes it, workers read it.
struct ClientState {
    std::atomic<bool> is_gone{false};  // the connection is closed
    std::atomic<bool> has_ended{
        false};  // the client has closed its side: it waits for the answer, or is gone
};

class Workers {
  public:
    // Throws std::runtime_error if a thread cannot be started.
    explicit Workers(size_t n_threads);
    // Finishes the tasks under way and drops the others.
    ~Workers();
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;

    // Any thread. Tasks must not throw. Those of clients that have ended their side come last: such a client is usually
    // gone, which shows a moment later.
    void post(std::function<void()> task, std::shared_ptr<const ClientState> client);
    // A short task that all tasks posted later rely on: they start after it has ended.
    void post_first(std::function<void()> task);

  private:
    using Clock = std::chrono::steady_clock;
    struct Task {
        std::function<void()> run;
        std::shared_ptr<const ClientState> client;
        Clock::time_point posted;
    };

    void end() noexcept;
    void run(Clock::duration patience);
    Task take();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> first_;
    size_t n_first_running_ = 0;
    std::deque<Task> tasks_;
    bool is_ending_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace server
