// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/fair_mutex.h"
#include "base/own_thread.h"
#include "base/pause.h"

namespace minim {
namespace {

using Clock = std::chrono::steady_clock;

// The time for which a worker polls for the next job before it sleeps. Operations of one token follow each other within
// microseconds, and waking a sleeping thread costs as much as a small operation.
constexpr std::chrono::microseconds k_spin_before_sleep(50);

// A worker that is kept awake offers its core to other threads about every microsecond. If there are more threads than cores,
// one of those threads may be about to post the job that the worker waits for.
constexpr int k_spins_between_offers = 16;

// If a yield takes longer than this, other threads needed the core. They get it for some milliseconds each time, whereas a
// sleeping worker is scheduled at once when it wakes. So for a while the worker sleeps as if it were not kept awake, then it
// tries again.
constexpr std::chrono::microseconds k_core_is_wanted(200);
constexpr std::chrono::milliseconds k_sleeps_for(100);

// A range of a job's tasks that one thread begins with. The thread takes them in order before it helps with the ranges of
// others. So it reads memory in sequence, and threads seldom write the same cache line, which takes 200 ns between cores
// without a common cache.
struct Share {
    int32_t part;  // of the job: index of the NUMA node
    int32_t piece;
    int32_t n_pieces;  // of the part
};

// Divides a job in n_parts parts: one share for each thread, in the part of its node, then one for each part without a thread.
std::vector<Share> divide(const ThreadPlan& plan, int32_t n_parts) {
    std::vector<Share> shares;
    std::array<int32_t, k_max_nodes> n_pieces = {};
    for (const ThreadPlace& place : plan.threads) {
        const int32_t part = place.node % n_parts;
        shares.push_back({part, n_pieces[part]++, 0});
    }
    for (int32_t part = 0; part < n_parts; ++part) {
        int32_t& n = n_pieces[part];
        if (n == 0) shares.push_back({part, n++, 0});
    }
    for (Share& share : shares) share.n_pieces = n_pieces[share.part];
    return shares;
}

// The distance of variables that different threads write: CPUs prefetch cache lines in pairs.
constexpr size_t k_line_pair_bytes = 128;

// The progress of a share and its thread. Each value is stored with 32 bits of its job's number, so that a new job needs no
// reset.
struct alignas(k_line_pair_bytes) Progress {
    std::atomic<uint64_t> job_and_taken{0};  // (job number << 32) | number of tasks taken from this share
    std::atomic<uint32_t> finished{0};       // the last job of which the thread found no more tasks
};

ThreadPlan plan_on_one_node(int32_t n_threads, Affinity affinity) {
    if (n_threads < 1) fail(Status::invalid, "thread count {} is not positive", n_threads);
    NumaPlan plan;
    plan.topology.nodes.push_back({0, affinity == Affinity::pinned ? usable_cores() : std::vector<int>()});
    return plan_threads(plan, n_threads, affinity);
}

}  // namespace

struct ThreadPool::State {
    // The job. The caller writes it before it advances `generation`; workers read it after they see the new generation. The job
    // and `generation` are on one cache line, so that workers wait for one line only.
    alignas(k_line_pair_bytes) std::atomic<uint64_t> generation{0};  // the job's number
    std::atomic<int32_t> n_awake{0};                                 // scopes in which workers do not sleep
    TaskFunction task = nullptr;
    const void* context = nullptr;
    int32_t n_parts = 0;
    std::array<int64_t, k_max_nodes + 1> first_of_part = {};

    int32_t n_threads = 1;
    HostThreads host;
    ThreadPlan plan;                                            // of the library's own threads
    std::array<std::vector<Share>, k_max_nodes + 1> shares_of;  // by number of parts
    std::vector<Progress> progress;                             // by share; the shares of threads come first
    int binding_error = 0;

    HomeProcess home;

    FairMutex callers;  // one job at a time

    std::atomic<bool> stop{false};
    std::mutex sleep_mutex;
    std::condition_variable wake;
    std::vector<std::thread> workers;

    // Takes tasks of a share until there are none.
    void work_on(size_t number, uint32_t job, int32_t thread) noexcept {
        const Share& share = shares_of[n_parts][number];
        const int64_t begin = first_of_part[share.part];
        const int64_t n_part_tasks = first_of_part[int64_t{share.part} + 1] - begin;
        const int64_t first = n_part_tasks * share.piece / share.n_pieces;
        const int64_t count = n_part_tasks * (share.piece + 1) / share.n_pieces - first;
        std::atomic<uint64_t>& job_and_taken = progress[number].job_and_taken;
        uint64_t seen = job_and_taken.load(std::memory_order_relaxed);
        while (true) {
            const auto n_taken = static_cast<uint32_t>(seen >> 32) == job ? static_cast<uint32_t>(seen) : 0U;
            if (n_taken >= count) return;
            const uint64_t next = (uint64_t{job} << 32) | (n_taken + 1);
            if (!job_and_taken.compare_exchange_weak(seen, next, std::memory_order_relaxed)) continue;
            seen = next;
            task(context, begin + first + n_taken, thread);
        }
    }

    // Works on the thread's own tasks, then on those of other threads of its node, then on those of other nodes.
    void work(int32_t thread, int32_t node) noexcept {
        const auto job = static_cast<uint32_t>(generation.load(std::memory_order_relaxed));
        const std::vector<Share>& shares = shares_of[n_parts];
        for (int32_t n = 0; n < n_parts; ++n) {
            const int32_t part = n_parts == 1 ? 0 : nth_node(node % n_parts, n, n_parts);
            for (size_t i = 0; i < shares.size(); ++i) {
                const size_t number = (thread + i) % shares.size();
                if (shares[number].part == part) work_on(number, job, thread);
            }
        }
    }

    // Returns the node that the calling thread runs on now.
    int32_t callers_node() const noexcept {
        unsigned cpu = 0;
        unsigned number = 0;
        if (n_parts == 1 || ::getcpu(&cpu, &number) != 0) return 0;
        const auto found = std::ranges::find(plan.node_numbers, static_cast<int32_t>(number));
        return found == plan.node_numbers.end() ? 0 : static_cast<int32_t>(found - plan.node_numbers.begin());
    }

    // Returns once there is a job after the one numbered `seen`. A worker keeps `sleeps_until` from job to job.
    void wait_for_job(uint64_t seen, Clock::time_point& sleeps_until) noexcept {
        const auto has_come = [&] { return generation.load(std::memory_order_acquire) != seen; };
        Spin spin(k_spin_before_sleep);
        while (!has_come() && spin.pause()) {
        }
        while (!has_come()) {
            const Clock::time_point now = Clock::now();
            const auto is_awake = [&] {
                return n_awake.load(std::memory_order_relaxed) > 0 && now >= sleeps_until;
            };
            if (is_awake()) {
                std::this_thread::yield();
                const Clock::time_point back = Clock::now();
                if (back - now >= k_core_is_wanted) sleeps_until = back + k_sleeps_for;
                for (int i = 0; i < k_spins_between_offers && !has_come(); ++i) pause_core();
            } else {
                std::unique_lock lock(sleep_mutex);
                wake.wait(lock, [&] { return has_come() || is_awake(); });
            }
        }
    }

    void worker_main(int32_t thread) noexcept {
        const int32_t node = plan.threads[thread].node;
        uint64_t seen = 0;
        Clock::time_point sleeps_until{};
        while (true) {
            wait_for_job(seen, sleeps_until);
            ++seen;
            if (stop.load(std::memory_order_relaxed)) return;
            work(thread, node);
            progress[thread].finished.store(static_cast<uint32_t>(seen), std::memory_order_release);
        }
    }

    // Job numbers have 32 bits and wrap around.
    void forget_jobs() noexcept {
        for (Progress& share : progress) share.job_and_taken.store(0, std::memory_order_relaxed);
    }

    void begin_awake() noexcept {
        if (home.is_left()) return;
        {
            const std::lock_guard lock(sleep_mutex);
            if (n_awake.fetch_add(1, std::memory_order_relaxed) > 0) return;
        }
        wake.notify_all();
    }

    // Workers notice the end of the scope when they next poll for a job.
    void end_awake() noexcept { n_awake.fetch_sub(1, std::memory_order_relaxed); }

    void announce() noexcept {
        {
            const std::lock_guard lock(sleep_mutex);
            generation.fetch_add(1, std::memory_order_release);
        }
        wake.notify_all();
    }

    void wait_for_workers() const noexcept {
        const auto job = static_cast<uint32_t>(generation.load(std::memory_order_relaxed));
        Spin spin(k_spin_before_sleep);
        for (int32_t thread = 1; thread < n_threads; ++thread) {
            while (progress[thread].finished.load(std::memory_order_acquire) != job) {
                if (!spin.pause())
                    std::this_thread::yield();  // more threads than cores: let the late one run
            }
        }
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
    for (int32_t n_parts = 1; n_parts <= k_max_nodes; ++n_parts)
        state.shares_of[n_parts] = divide(plan, n_parts);
    state.progress = std::vector<Progress>(plan.threads.size() + k_max_nodes);
    state.workers.reserve(plan.threads.size() - 1);
    // If a worker cannot be started, the destructor ends the others, because the constructor delegated to above has completed.
    for (int32_t thread = 1; thread < state.n_threads; ++thread) {
        state.workers.push_back(
            start_thread(format_text("minim-{}", thread),
                         format_text("worker thread {} of {}", thread, state.n_threads - 1),
                         [&state, thread] { state.worker_main(thread); }));
        const std::vector<int>& cores = plan.threads[thread].cores;
        const int error = cores.empty() ? 0 : calls.bind_thread(state.workers.back().native_handle(), cores);
        if (state.binding_error == 0) state.binding_error = error;
    }
}

ThreadPool::ThreadPool(int32_t n_threads, Affinity affinity)
    : ThreadPool(plan_on_one_node(n_threads, affinity), system_placement_calls()) {}

ThreadPool::~ThreadPool() {
    // Missing threads cannot be joined, and the objects that they wait on must not be destroyed.
    if (is_left()) {
        static_cast<void>(state_.release());
        return;
    }
    state_->join_all();
}

bool ThreadPool::is_left() const noexcept {
    return !state_->workers.empty() && state_->home.is_left();
}

void ThreadPool::require_threads() const {
    if (!state_->workers.empty()) state_->home.require("the runtime");
}

int32_t ThreadPool::n_threads() const noexcept {
    return state_->n_threads;
}

bool ThreadPool::is_hosts() const noexcept {
    return state_->host.run != nullptr;
}

int32_t ThreadPool::n_threads_of(int32_t node) const noexcept {
    const ThreadPlan& plan = state_->plan;
    if (plan.node_numbers.size() <= 1) return state_->n_threads;
    return static_cast<int32_t>(std::ranges::count(plan.threads, node, &ThreadPlace::node));
}

int ThreadPool::binding_error() const noexcept {
    return state_->binding_error;
}

bool ThreadPool::is_kept_awake() const noexcept {
    return state_->n_awake.load(std::memory_order_relaxed) > 0;
}

ThreadPool::Awake::Awake(const ThreadPool& pool) noexcept : pool_(pool) {
    pool_.state_->begin_awake();
}

ThreadPool::Awake::~Awake() {
    pool_.state_->end_awake();
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
    require_threads();
    const std::lock_guard caller(state.callers);
    state.task = task;
    state.context = context;
    state.n_parts = static_cast<int32_t>(first_of_part.size()) - 1;
    std::ranges::copy(first_of_part, state.first_of_part.begin());
    if (static_cast<uint32_t>(state.generation.load(std::memory_order_relaxed) + 1) == 0) state.forget_jobs();
    state.announce();
    state.work(0, state.callers_node());
    state.wait_for_workers();
}

}  // namespace minim
