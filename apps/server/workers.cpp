// SPDX-License-Identifier: Apache-2.0
#include "workers.h"

#include <algorithm>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace server {

Workers::Workers(size_t n_threads) {
    static constexpr std::chrono::milliseconds k_patience{20};
    threads_.reserve(n_threads);
    try {
        for (size_t i = 0; i < n_threads; ++i)
            threads_.emplace_back(
                [this, i] { run(i == 0 ? Clock::duration{} : Clock::duration{k_patience}); });
    } catch (const std::system_error& error) {
        end();
        throw std::runtime_error(fmt::format("cannot start thread {} of {} that prepare requests: {}",
                                             threads_.size() + 1, n_threads, error.what()));
    } catch (...) {
        end();
        throw;
    }
}

Workers::~Workers() {
    end();
}

void Workers::end() noexcept {
    {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Workers::post(std::function<void()> task, std::shared_ptr<const ClientState> client) {
    {
        const std::lock_guard lock(mutex_);
        tasks_.push_back({std::move(task), std::move(client), Clock::now()});
    }
    changed_.notify_all();
}

void Workers::post_first(std::function<void()> task) {
    {
        const std::lock_guard lock(mutex_);
        first_.push_back(std::move(task));
    }
    changed_.notify_all();
}

Workers::Task Workers::take() {
    const auto waits = [](const Task& task) { return !task.client || !task.client->has_ended; };
    auto next = std::ranges::find_if(tasks_, waits);
    if (next == tasks_.end()) next = tasks_.begin();
    Task task = std::move(*next);
    tasks_.erase(next);
    return task;
}

// `patience`: how long a task waits for another thread before this one takes it.
void Workers::run(Clock::duration patience) {
    std::unique_lock lock(mutex_);
    while (!is_ending_) {
        const bool is_first = !first_.empty();
        if (!is_first && (n_first_running_ > 0 || tasks_.empty())) {
            changed_.wait(lock);
            continue;
        }
        if (!is_first && Clock::now() < tasks_.front().posted + patience) {
            changed_.wait_until(lock, tasks_.front().posted + patience);
            continue;
        }
        Task task;
        if (is_first) {
            task.run = std::move(first_.front());
            first_.pop_front();
            ++n_first_running_;
        } else {
            task = take();
        }
        lock.unlock();
        task.run();
        task = {};
        lock.lock();
        if (is_first && --n_first_running_ == 0) changed_.notify_all();
    }
}

}  // namespace server
