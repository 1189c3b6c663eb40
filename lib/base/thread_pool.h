// The library's own threads. A job is a number of equal tasks; the caller works too. Which thread runs a task
// never changes a result: tasks write to places of their own.
#pragma once

#include <cstdint>
#include <memory>

namespace minim {

// Internally locked: several threads may call run(); their jobs go one after another.
class ThreadPool {
  public:
    // `n_threads` counts the calling thread; it must be at least 1. Throws out_of_memory when a thread can't
    // be made.
    explicit ThreadPool(int32_t n_threads);
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
    using TaskFunction = void (*)(const void* context, int64_t index, int32_t thread);
    void run_erased(int64_t n_tasks, TaskFunction task, const void* context) const;

    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace minim
