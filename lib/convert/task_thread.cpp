// SPDX-License-Identifier: Apache-2.0
#include "convert/task_thread.h"

#include <utility>

#include "base/own_thread.h"

namespace minim::convert {

TaskThread::TaskThread(std::string_view name) : thread_(start_thread(name, name, [this] { work(); })) {}

TaskThread::~TaskThread() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

uint64_t TaskThread::submit(std::function<void()> task) {
    uint64_t number = 0;
    {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
        number = ++n_submitted_;
    }
    changed_.notify_all();
    return number;
}

void TaskThread::wait(uint64_t task) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return n_done_ >= task || error_ != nullptr; });
    if (error_ != nullptr) std::rethrow_exception(error_);
}

void TaskThread::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return ends_ || (!tasks_.empty() && error_ == nullptr); });
        if (ends_) return;
        const std::function<void()> task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        std::exception_ptr error;
        try {
            task();
        } catch (...) {
            error = std::current_exception();
        }
        lock.lock();
        error_ = error;
        if (error == nullptr) ++n_done_;
        changed_.notify_all();
    }
}

}  // namespace minim::convert
