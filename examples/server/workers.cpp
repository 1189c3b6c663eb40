// SPDX-License-Identifier: Apache-2.0
#include "workers.h"

#include <algorithm>
#include <utility>

namespace server {

Workers::Workers(size_t n_threads) {
    for (size_t i = 0; i < n_threads; ++i) threads_.emplace_back([this] { run(); });
}

Workers::~Workers() {
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
        tasks_.push_back({std::move(task), std::move(client)});
    }
    changed_.notify_one();
}

void Workers::post_first(std::function<void()> task) {
    {
        const std::lock_guard lock(mutex_);
        first_.push_back(std::move(task));
    }
    changed_.notify_one();
}

bool Workers::has_work() const {
    return !first_.empty() || (n_first_running_ == 0 && !tasks_.empty());
}

Workers::Task Workers::take() {
    const auto waits = [](const Task& task) { return !task.client || !task.client->has_ended; };
    auto next = std::ranges::find_if(tasks_, waits);
    if (next == tasks_.end()) next = tasks_.begin();
    Task task = std::move(*next);
    tasks_.erase(next);
    return task;
}

void Workers::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return is_ending_ || has_work(); });
        if (is_ending_) return;
        const bool is_first = !first_.empty();
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
