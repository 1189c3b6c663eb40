// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank_threads.h"

#include "base/format_text.h"
#include "base/own_thread.h"

namespace minim::runtime {

RankThreads::RankThreads(size_t n) {
    try {
        for (size_t rank = 1; rank < n; ++rank)
            threads_.push_back(start_thread(format_text("minim-rank-{}", rank), "a thread of a rank",
                                            [this, rank] { work(rank); }));
    } catch (...) {
        end();
        throw;
    }
}

RankThreads::~RankThreads() {
    end();
}

void RankThreads::end() noexcept {
    {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
    }
    begun_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void RankThreads::work(size_t rank) {
    uint64_t n_seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
        begun_.wait(lock, [&] { return is_ending_ || n_runs_ > n_seen; });
        if (is_ending_) return;
        n_seen = n_runs_;
        const std::function<void(size_t)>& task = *task_;
        lock.unlock();
        task(rank);
        lock.lock();
        if (--n_running_ == 0) ended_.notify_one();
    }
}

void RankThreads::run(const std::function<void(size_t)>& task) {
    {
        const std::lock_guard lock(mutex_);
        task_ = &task;
        n_running_ = threads_.size();
        ++n_runs_;
    }
    begun_.notify_all();
    task(0);
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return n_running_ == 0; });
}

}  // namespace minim::runtime
