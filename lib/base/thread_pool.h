// The threads of the arithmetic: the library's own, or the host's. A job is a number of equal tasks; the caller
// works too. Which thread runs a task never changes a result: tasks write to places of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/numa.h"

namespace minim {

using TaskFunction = void (*)(const void* context, int64_t index, int32_t thread);

// A host's way to run a job on threads of its own: task(context, i, thread) once for each i in [0, n_tasks), where
// no two tasks that run at the same time have the same `thread`; returns when all are done. May be called from
// several threads at once.
struct HostThreads {
    void (*run)(void* user_data, int64_t n_tasks, TaskFunction task, const void* context) = nullptr;
    void* user_data = nullptr;
};

// Internally locked: several threads may call run(). Jobs on threads of our own go one after another.
class ThreadPool {
  public:
    // `n_threads` counts the calling thread; it must be at least 1. Pinned workers stay on a core each, of those
    // the process may use when the pool is made; the first core is left to the caller, whom nobody pins. Throws
    // out_of_memory where a thread cannot be started.
    explicit ThreadPool(int32_t n_threads, Affinity affinity = Affinity::free);
    // A thread a place. Where the system does not bind a worker, it runs anywhere: binding_error().
    ThreadPool(const ThreadPlan& plan, const PlacementCalls& calls);
    // No threads of our own: the host's, whose numbers are below n_threads.
    ThreadPool(int32_t n_threads, const HostThreads& host);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int32_t n_threads() const noexcept;
    bool is_hosts() const noexcept;  // threads of the host
    // Threads beside a node of the plan; all of them where there is but one.
    int32_t n_threads_of(int32_t node) const noexcept;
    // The errno of the first worker that could not be bound; 0: all are where they were wanted.
    int binding_error() const noexcept;

    // Whether this process is a child of the one that has the workers. Then run() throws, and the destructor leaves them alone.
    bool is_left() const noexcept;
    // Throws invalid in such a child.
    void require_threads() const;

    // Calls task(i, thread) once for each i in [0, n_tasks), with 0 <= thread < n_threads(); returns when all
    // are done. A thread takes neighbours one after the other, and what others have not begun when it has no more of its own.
    // At most UINT32_MAX tasks; `task` must not throw and must not call run().
    template <typename Task>
    void run(int64_t n_tasks, const Task& task) const {
        const int64_t first[] = {0, n_tasks};
        run_erased(
            first,
            [](const void* context, int64_t index, int32_t thread) {
                (*static_cast<const Task*>(context))(index, thread);
            },
            &task);
    }

    // The same for tasks in parts, one a memory node: those of part k are first_of_part[k] and up, below
    // first_of_part[k + 1]. A thread begins with the part of its node and goes on with the others, so that all
    // end together; the caller begins with that of the node it runs beside. At most k_most_nodes parts.
    template <typename Task>
    void run_parts(std::span<const int64_t> first_of_part, const Task& task) const {
        run_erased(
            first_of_part,
            [](const void* context, int64_t index, int32_t thread) {
                (*static_cast<const Task*>(context))(index, thread);
            },
            &task);
    }

    // While at least one of these exists, the pool's own workers look for the next job without sleeping, unless other threads want
    // their cores. For jobs with gaps of up to some milliseconds between them: waking the workers up takes about 60 us. Does
    // nothing to a host's threads. The pool must outlive it.
    class [[nodiscard]] Awake {
      public:
        explicit Awake(const ThreadPool& pool) noexcept;
        ~Awake();
        Awake(const Awake&) = delete;
        Awake& operator=(const Awake&) = delete;

      private:
        const ThreadPool& pool_;
    };
    // Any thread. Wakes the workers up without waiting for them.
    Awake stay_awake() const noexcept { return Awake(*this); }
    bool is_kept_awake() const noexcept;

  private:
    void run_erased(std::span<const int64_t> first_of_part, TaskFunction task, const void* context) const;

    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace minim
