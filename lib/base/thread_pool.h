// SPDX-License-Identifier: Apache-2.0
// The compute threads: the library's own, or the host's. A job is a number of equal tasks; the calling thread works too.
// Results do not depend on which thread runs a task: each task has its own outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/numa.h"

namespace minim {

using TaskFunction = void (*)(const void* context, int64_t index, int32_t thread);

// A host's function that runs a job on its own threads: it calls task(context, i, thread) once for each i in [0, n_tasks)
// and returns when all are done. Two tasks that run at the same time must not have the same `thread`. It may be called
// from several threads at once.
struct HostThreads {
    void (*run)(void* user_data, int64_t n_tasks, TaskFunction task, const void* context) = nullptr;
    void* user_data = nullptr;
};

// Thread-safe: several threads may call run(). Jobs on the library's own threads run one after another (fair_mutex.h).
class ThreadPool {
  public:
    // Starts n_threads - 1 workers (`n_threads` counts the calling thread; at least 1). Each pinned worker stays on a core of its
    // own, one that the process may use now. The first such core is left to the caller, which is not pinned. Throws
    // out_of_memory if a thread cannot be started.
    explicit ThreadPool(int32_t n_threads, Affinity affinity = Affinity::free);
    // Starts a thread for each place. If the system refuses to bind a worker, it runs anywhere: see binding_error().
    ThreadPool(const ThreadPlan& plan, const PlacementCalls& calls);
    // Uses the host's threads, numbered below n_threads, and starts none.
    ThreadPool(int32_t n_threads, const HostThreads& host);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int32_t n_threads() const noexcept;
    bool is_hosts() const noexcept;  // true: the threads are the host's
    // Returns the number of threads of a node of the plan; all threads if there is one node.
    int32_t n_threads_of(int32_t node) const noexcept;
    // Returns the errno of the first worker that could not be bound; 0: all are bound as planned.
    int binding_error() const noexcept;

    // Returns whether this process is a child of the one that has the workers. In a child, run() throws, and the destructor
    // does not join the workers.
    bool is_left() const noexcept;
    // Throws invalid if is_left().
    void require_threads() const;

    // Calls task(i, thread) once for each i in [0, n_tasks), with 0 <= thread < n_threads(); returns when all are done. A thread
    // takes its own range of neighbouring tasks first, then helps with the ranges of others.
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

    // Runs tasks in parts, one for each NUMA node: part k has tasks first_of_part[k] .. first_of_part[k + 1] - 1. A thread
    // begins with the part of its node and then helps with the others; the caller begins with the part of the node that
    // it runs on. At most k_max_nodes parts.
    template <typename Task>
    void run_parts(std::span<const int64_t> first_of_part, const Task& task) const {
        run_erased(
            first_of_part,
            [](const void* context, int64_t index, int32_t thread) {
                (*static_cast<const Task*>(context))(index, thread);
            },
            &task);
    }

    // While at least one such object exists, the pool's own workers poll for the next job instead of sleeping, unless other
    // threads need their cores. Use it for jobs with gaps of up to some milliseconds between them: waking the workers takes
    // about 60 us. It has no effect on a host's threads. The pool must outlive it.
    class [[nodiscard]] Awake {
      public:
        explicit Awake(const ThreadPool& pool) noexcept;
        ~Awake();
        Awake(const Awake&) = delete;
        Awake& operator=(const Awake&) = delete;

      private:
        const ThreadPool& pool_;
    };
    // Keeps the workers awake while the result exists. Wakes them without waiting for them. Any thread.
    bool is_kept_awake() const noexcept;

  private:
    void run_erased(std::span<const int64_t> first_of_part, TaskFunction task, const void* context) const;

    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace minim
