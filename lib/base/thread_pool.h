// The threads of the arithmetic: the library's own, or the host's. A job is a number of equal tasks; the caller
// works too. Which thread runs a task never changes a result: tasks write to places of their own.
#pragma once

#include <cstdint>
#include <memory>

namespace minim {

using TaskFunction = void (*)(const void* context, int64_t index, int32_t thread);

// A host's way to run a job on threads of its own: task(context, i, thread) once for each i in [0, n_tasks), where
// no two tasks that run at the same time have the same `thread`; returns when all are done. May be called from
// several threads at once.
struct HostThreads {
    void (*run)(void* user_data, int64_t n_tasks, TaskFunction task, const void* context) = nullptr;
    void* user_data = nullptr;
};

enum class Affinity { free, pinned };

// Internally locked: several threads may call run(). Jobs on threads of our own go one after another.
class ThreadPool {
  public:
    // `n_threads` counts the calling thread; it must be at least 1. Pinned workers stay on a core each, of those
    // the process may use when the pool is made; the first core is left to the caller, whom nobody pins. Throws
    // out_of_memory when a thread can't be made.
    explicit ThreadPool(int32_t n_threads, Affinity affinity = Affinity::free);
    // No threads of our own: the host's, whose numbers are below n_threads.
    ThreadPool(int32_t n_threads, const HostThreads& host);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int32_t n_threads() const noexcept;

    // Calls task(i, thread) once for each i in [0, n_tasks), with 0 <= thread < n_threads(); returns when all
    // are done. `task` must not throw and must not call run().
    template <typename Task>
    void run(int64_t n_tasks, const Task& task) const {
        run_erased(
            n_tasks,
            [](const void* context, int64_t index, int32_t thread) {
                (*static_cast<const Task*>(context))(index, thread);
            },
            &task);
    }

  private:
    void run_erased(int64_t n_tasks, TaskFunction task, const void* context) const;

    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace minim
