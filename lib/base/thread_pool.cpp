#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <array>
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

// Of the tasks of a job, those of one memory node. On a cache line of its own: threads of other nodes count elsewhere.
struct alignas(64) Part {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
};

ThreadPlan plan_on_one_node(int32_t n_threads, Affinity affinity) {
    if (n_threads < 1) fail(Status::invalid, "thread count {} is not positive", n_threads);
    NumaPlan plan;
    plan.topology.nodes.push_back({0, affinity == Affinity::pinned ? usable_cores() : std::vector<int>()});
    return plan_threads(plan, n_threads, affinity);
}

}  // namespace

struct ThreadPool::State {
    int32_t n_threads = 1;
    HostThreads host;
    ThreadPlan plan;  // of threads of our own
    std::vector<int32_t> n_threads_of_node;
    int binding_error = 0;

    std::mutex callers;  // one job at a time

    // The job; written by the caller before `generation` moves, read by workers after they see it move.
    TaskFunction task = nullptr;
    const void* context = nullptr;
    int32_t n_parts = 0;
    std::array<Part, k_most_nodes> parts;
    std::atomic<int32_t> working{0};  // workers that have not finished the job

    std::atomic<uint64_t> generation{0};
    std::atomic<bool> stop{false};
    std::mutex sleep_mutex;
    std::condition_variable wake;
    std::vector<std::thread> workers;

    void work_on(Part& part, int32_t thread) noexcept {
        for (int64_t i = part.next.fetch_add(1, std::memory_order_relaxed); i < part.end;
             i = part.next.fetch_add(1, std::memory_order_relaxed)) {
            task(context, i, thread);
        }
    }

    void work(int32_t thread, int32_t node) noexcept {
        if (n_parts == 1) return work_on(parts[0], thread);
        for (int32_t n = 0; n < n_parts; ++n)
            work_on(parts[static_cast<size_t>(nth_node(node % n_parts, n, n_parts))], thread);
    }

    // Of the node the caller runs beside just now.
    int32_t callers_node() const noexcept {
        unsigned cpu = 0;
        unsigned number = 0;
        if (n_parts == 1 || ::getcpu(&cpu, &number) != 0) return 0;
        const auto found = std::ranges::find(plan.node_numbers, static_cast<int32_t>(number));
        return found == plan.node_numbers.end() ? 0 : static_cast<int32_t>(found - plan.node_numbers.begin());
    }

    void worker_main(int32_t thread) noexcept {
        const int32_t node = plan.threads[static_cast<size_t>(thread)].node;
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
            work(thread, node);
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

ThreadPool::ThreadPool(const ThreadPlan& plan, const PlacementCalls& calls)
    : ThreadPool(static_cast<int32_t>(plan.threads.size()), HostThreads{}) {
    State& state = *state_;
    state.plan = plan;
    state.n_threads_of_node.resize(plan.node_numbers.size());
    for (const ThreadPlace& place : plan.threads) ++state.n_threads_of_node[static_cast<size_t>(place.node)];
    state.workers.reserve(plan.threads.size() - 1);
    try {
        for (int32_t thread = 1; thread < state.n_threads; ++thread) {
            state.workers.emplace_back([&state, thread] { state.worker_main(thread); });
            const std::vector<int>& cores = plan.threads[static_cast<size_t>(thread)].cores;
            const int error =
                cores.empty() ? 0 : calls.bind_thread(state.workers.back().native_handle(), cores);
            if (state.binding_error == 0) state.binding_error = error;
        }
    } catch (...) {
        const size_t started = state.workers.size();
        state.join_all();
        fail(Status::out_of_memory, "cannot start thread {} of {}", started + 2, state.n_threads);
    }
}

ThreadPool::ThreadPool(int32_t n_threads, Affinity affinity)
    : ThreadPool(plan_on_one_node(n_threads, affinity), system_placement_calls()) {}

ThreadPool::~ThreadPool() {
    state_->join_all();
}

int32_t ThreadPool::n_threads() const noexcept {
    return state_->n_threads;
}

bool ThreadPool::is_hosts() const noexcept {
    return state_->host.run != nullptr;
}

int32_t ThreadPool::n_threads_of(int32_t node) const noexcept {
    const std::vector<int32_t>& counts = state_->n_threads_of_node;
    return counts.size() <= 1 ? state_->n_threads : counts[static_cast<size_t>(node)];
}

int ThreadPool::binding_error() const noexcept {
    return state_->binding_error;
}

void ThreadPool::run_erased(std::span<const int64_t> first_of_part, TaskFunction task,
                            const void* context) const {
    const int64_t n_tasks = first_of_part.back();
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
    state.n_parts = static_cast<int32_t>(first_of_part.size()) - 1;
    for (size_t k = 0; k + 1 < first_of_part.size(); ++k) {
        state.parts[k].next.store(first_of_part[k], std::memory_order_relaxed);
        state.parts[k].end = first_of_part[k + 1];
    }
    state.working.store(static_cast<int32_t>(state.workers.size()), std::memory_order_relaxed);
    state.announce();
    state.work(0, state.callers_node());
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
