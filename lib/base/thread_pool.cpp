#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/cpu_features.h"
#include "base/error.h"

namespace minim {
namespace {

// A worker looks this often for the next job before it sleeps. Operations of one token follow each other
// within microseconds, and waking a sleeping thread costs as much as a small operation.
constexpr int k_spins_before_sleep = 2000;

void pause_briefly() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// A wish: where it is not granted the thread runs anywhere.
void pin(std::thread& thread, int core) noexcept {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(core), &one);
    pthread_setaffinity_np(thread.native_handle(), sizeof(one), &one);
}

}  // namespace

struct ThreadPool::State {
    int32_t n_threads = 1;
    HostThreads host;

    std::mutex callers;  // one job at a time

    // The job; written by the caller before `generation` moves, read by workers after they see it move.
    TaskFunction task = nullptr;
    const void* context = nullptr;
    int64_t n_tasks = 0;
    std::atomic<int64_t> next{0};
    std::atomic<int32_t> working{0};  // workers that have not finished the job

    std::atomic<uint64_t> generation{0};
    std::atomic<bool> stop{false};
    std::mutex sleep_mutex;
    std::condition_variable wake;
    std::vector<std::thread> workers;

    void work(int32_t thread) noexcept {
        for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < n_tasks;
             i = next.fetch_add(1, std::memory_order_relaxed)) {
            task(context, i, thread);
        }
    }

    void worker_main(int32_t thread) noexcept {
        uint64_t seen = 0;
        while (true) {
            for (int spin = 0;
                 spin < k_spins_before_sleep && generation.load(std::memory_order_acquire) == seen; ++spin) {
                pause_briefly();
            }
            if (generation.load(std::memory_order_acquire) == seen) {
                std::unique_lock lock(sleep_mutex);
                wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen; });
            }
            ++seen;
            if (stop.load(std::memory_order_relaxed)) return;
            work(thread);
            working.fetch_sub(1, std::memory_order_release);
        }
    }

    void announce() noexcept {
        {
            const std::lock_guard lock(sleep_mutex);
            generation.fetch_add(1, std::memory_order_release);
        }
        wake.notify_all();
    }

    void join_all() noexcept {
        stop.store(true, std::memory_order_relaxed);
        announce();
        for (std::thread& worker : workers) worker.join();
    }
};

ThreadPool::ThreadPool(int32_t n_threads, const HostThreads& host) : state_(std::make_unique<State>()) {
    if (n_threads < 1) fail(Status::invalid, "thread count {} is not positive", n_threads);
    state_->n_threads = n_threads;
    state_->host = host;
}

ThreadPool::ThreadPool(int32_t n_threads, Affinity affinity) : ThreadPool(n_threads, HostThreads{}) {
    const std::vector<int> cores = affinity == Affinity::pinned ? usable_cores() : std::vector<int>();
    State& state = *state_;
    state.workers.reserve(static_cast<size_t>(n_threads - 1));
    try {
        for (int32_t thread = 1; thread < n_threads; ++thread) {
            state.workers.emplace_back([&state, thread] { state.worker_main(thread); });
            if (!cores.empty()) pin(state.workers.back(), cores[static_cast<size_t>(thread) % cores.size()]);
        }
    } catch (...) {
        const size_t started = state.workers.size();
        state.join_all();
        fail(Status::out_of_memory, "cannot start thread {} of {}", started + 2, n_threads);
    }
}

ThreadPool::~ThreadPool() {
    state_->join_all();
}

int32_t ThreadPool::n_threads() const noexcept {
    return state_->n_threads;
}

void ThreadPool::run_erased(int64_t n_tasks, TaskFunction task, const void* context) const {
    if (n_tasks <= 0) return;
    State& state = *state_;
    if (n_tasks == 1 || state.n_threads == 1) {
        for (int64_t i = 0; i < n_tasks; ++i) task(context, i, 0);
        return;
    }
    if (state.host.run != nullptr) return state.host.run(state.host.user_data, n_tasks, task, context);
    const std::lock_guard caller(state.callers);
    state.task = task;
    state.context = context;
    state.n_tasks = n_tasks;
    state.next.store(0, std::memory_order_relaxed);
    state.working.store(static_cast<int32_t>(state.workers.size()), std::memory_order_relaxed);
    state.announce();
    state.work(0);
    int spins = 0;
    while (state.working.load(std::memory_order_acquire) != 0) {
        if (++spins < k_spins_before_sleep) {
            pause_briefly();
        } else {
            std::this_thread::yield();  // more threads than cores: let the late one run
        }
    }
}

}  // namespace minim
