// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu_features.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::test;

TEST_CASE("every task runs once, on a thread of the pool") {
    for (int32_t n_threads = 1; n_threads <= 4; ++n_threads) {
        const ThreadPool pool(n_threads);
        CHECK(pool.n_threads() == n_threads);
        for (const int64_t n_tasks : {1, 2, 3, 7, 64, 1000}) {
            std::vector<std::atomic<int>> runs(static_cast<size_t>(n_tasks));
            std::atomic<bool> wrong_thread{false};
            pool.run(n_tasks, [&](int64_t task, int32_t thread) {
                runs[static_cast<size_t>(task)].fetch_add(1);
                if (thread < 0 || thread >= n_threads) wrong_thread = true;
            });
            INFO(n_threads << " threads, " << n_tasks << " tasks");
            CHECK(std::all_of(runs.begin(), runs.end(), [](const auto& count) { return count == 1; }));
            CHECK_FALSE(wrong_thread);
        }
    }
}

TEST_CASE("pinned workers run every task once, each on a core the process may use") {
    const std::vector<int> cores = usable_cores();
    REQUIRE_FALSE(cores.empty());
    CHECK(std::is_sorted(cores.begin(), cores.end()));
    const ThreadPool pool(3, Affinity::pinned);
    std::vector<std::atomic<int>> runs(300);
    std::atomic<bool> strays{false};
    pool.run(300, [&](int64_t task, int32_t thread) {
        runs[static_cast<size_t>(task)].fetch_add(1);
        if (thread == 0) return;  // the caller is free
        const int expected = cores[static_cast<size_t>(thread) % cores.size()];
        if (sched_getcpu() != expected) strays = true;
    });
    CHECK(std::all_of(runs.begin(), runs.end(), [](const auto& count) { return count == 1; }));
    CHECK_FALSE(strays);
}

TEST_CASE("a host's threads run the job in place of our own") {
    struct Host {
        int64_t n_tasks = 0;
        static void run(void* self, int64_t n_tasks, TaskFunction task, const void* context) {
            static_cast<Host*>(self)->n_tasks += n_tasks;
            std::vector<std::thread> threads;
            for (int32_t slot = 0; slot < 2; ++slot) {
                threads.emplace_back([=] {
                    for (int64_t i = slot; i < n_tasks; i += 2) task(context, i, slot);
                });
            }
            for (std::thread& thread : threads) thread.join();
        }
    } host;
    const ThreadPool pool(2, HostThreads{Host::run, &host});
    CHECK(pool.n_threads() == 2);
    std::vector<int> runs(7);
    pool.run(7, [&](int64_t task, int32_t) { ++runs[static_cast<size_t>(task)]; });
    CHECK(runs == std::vector<int>(7, 1));
    CHECK(host.n_tasks == 7);
    pool.run(0, [&](int64_t, int32_t) { ++runs[0]; });
    pool.run(1, [&](int64_t, int32_t thread) { runs[0] += 1 + thread; });  // too little work for the host
    CHECK(runs[0] == 2);
    CHECK(host.n_tasks == 7);
}

TEST_CASE("a job of no tasks runs nothing") {
    const ThreadPool pool(2);
    bool ran = false;
    pool.run(0, [&](int64_t, int32_t) { ran = true; });
    pool.run(-5, [&](int64_t, int32_t) { ran = true; });
    CHECK_FALSE(ran);
}

TEST_CASE("two tasks of one job never share a thread number at the same time") {
    const ThreadPool pool(3);
    std::vector<std::atomic<int>> busy(3);
    std::atomic<bool> shared{false};
    pool.run(300, [&](int64_t, int32_t thread) {
        auto& mine = busy[static_cast<size_t>(thread)];
        if (mine.fetch_add(1) != 0) shared = true;
        std::this_thread::yield();
        mine.fetch_sub(1);
    });
    CHECK_FALSE(shared);
}

TEST_CASE("threads that keep step take neighbours each") {
    const ThreadPool pool(2);
    std::array<std::atomic<int>, 2> n_begun = {};
    std::array<std::atomic<int32_t>, 8> thread_of = {};
    for (int job = 0; job < 3; ++job) {
        for (auto& n : n_begun) n = 0;
        pool.run(8, [&](int64_t task, int32_t thread) {
            thread_of[static_cast<size_t>(task)] = thread;
            const int n = ++n_begun[static_cast<size_t>(thread)];
            while (n_begun[static_cast<size_t>(1 - thread)] < n) std::this_thread::yield();
        });
        for (size_t task = 0; task < 8; ++task) CHECK(thread_of[task] == static_cast<int32_t>(task / 4));
    }
}

TEST_CASE("a thread helps with what another has not begun") {
    const ThreadPool pool(2);
    std::atomic<int> n_done{0};
    // Task 0 waits for all others, some of which belong to the same thread at first.
    pool.run(100, [&](int64_t task, int32_t) {
        while (task == 0 && n_done < 99) std::this_thread::yield();
        ++n_done;
    });
    CHECK(n_done == 100);
}

TEST_CASE("what the tasks wrote is seen after run") {
    const ThreadPool pool(4);
    std::vector<int64_t> squares(500);
    for (int64_t round = 0; round < 20; ++round) {
        pool.run(500, [&](int64_t i, int32_t) { squares[static_cast<size_t>(i)] = i * i + round; });
        for (int64_t i = 0; i < 500; ++i) REQUIRE(squares[static_cast<size_t>(i)] == i * i + round);
    }
}

TEST_CASE("many tiny jobs all finish") {
    const ThreadPool pool(3);
    std::atomic<int64_t> sum{0};
    for (int64_t job = 0; job < 3000; ++job) {
        pool.run(1 + job % 4, [&](int64_t task, int32_t) { sum.fetch_add(task + 1); });
    }
    CHECK(sum == 3000 / 4 * (1 + 3 + 6 + 10));
}

TEST_CASE("several callers share a pool") {
    const ThreadPool pool(2);
    std::vector<int64_t> sums(4, 0);
    std::vector<std::thread> callers;
    for (size_t caller = 0; caller < sums.size(); ++caller) {
        callers.emplace_back([&, caller] {
            std::vector<int64_t> values(50);
            for (int round = 0; round < 50; ++round) {
                pool.run(50, [&](int64_t i, int32_t) { values[static_cast<size_t>(i)] += i; });
            }
            for (const int64_t value : values) sums[caller] += value;
        });
    }
    for (std::thread& caller : callers) caller.join();
    for (const int64_t sum : sums) CHECK(sum == 50 * (49 * 50 / 2));
}

TEST_CASE("a pool that never ran a job ends") {
    for (int i = 0; i < 20; ++i) const ThreadPool pool(4);
}

TEST_CASE("a pool wakes up after its threads have gone to sleep") {
    const ThreadPool pool(2);
    for (int i = 0; i < 3; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::atomic<int> count{0};
        pool.run(10, [&](int64_t, int32_t) { count.fetch_add(1); });
        CHECK(count == 10);
    }
}

TEST_CASE("a pool of no thread is invalid") {
    for (const int32_t n_threads : {0, -1, INT32_MIN}) {
        expect_error(Status::invalid, std::to_string(n_threads), [&] { const ThreadPool pool(n_threads); });
    }
}

TEST_CASE("tasks in parts run once each, whichever threads there are") {
    for (const int32_t n_threads : {1, 2, 5}) {
        NumaPlan plan;
        plan.mode = Numa::split;
        plan.topology.nodes = {{0, {0}}, {1, {1}}, {2, {2}}};
        PlacementCalls calls = system_placement_calls();
        calls.bind_thread = [](pthread_t, std::span<const int>) { return 0; };
        const ThreadPool pool(plan_threads(plan, n_threads, Affinity::free), calls);
        for (const std::vector<int64_t>& first : {std::vector<int64_t>{0, 100, 200, 300},
                                                  {0, 0, 1, 300},
                                                  {0, 300},
                                                  {0, 0, 0, 0},
                                                  {0, 150, 300}}) {
            std::vector<std::atomic<int>> runs(static_cast<size_t>(first.back()));
            for (int job = 0; job < 20; ++job)
                pool.run_parts(first, [&](int64_t i, int32_t) { runs[static_cast<size_t>(i)].fetch_add(1); });
            CHECK(std::ranges::all_of(runs, [](const auto& n) { return n == 20; }));
        }
    }
}

TEST_CASE("a worker begins with the part of its node") {
    NumaPlan plan;
    plan.mode = Numa::split;
    plan.topology.nodes = {{1000, {0}}, {1001, {1}}};  // other cores: the caller counts to node 0
    PlacementCalls calls = system_placement_calls();
    calls.bind_thread = [](pthread_t, std::span<const int>) { return 0; };
    const ThreadPool pool(plan_threads(plan, 2, Affinity::free), calls);
    CHECK(pool.n_threads_of(0) == 1);
    CHECK(pool.n_threads_of(1) == 1);
    // The first two tasks wait for each other, so both threads take part.
    std::atomic<int> n_begun{0};
    std::atomic<int64_t> first_of_worker{-1};
    const int64_t first[] = {0, 1, 2};
    pool.run_parts(first, [&](int64_t i, int32_t thread) {
        if (thread == 1) first_of_worker = i;
        ++n_begun;
        while (n_begun < 2) std::this_thread::yield();
    });
    CHECK(first_of_worker == 1);
}

TEST_CASE("workers stay awake as long as one scope wants them to") {
    const ThreadPool pool(3);
    const auto run_job = [&] {
        std::atomic<int> count{0};
        pool.run(10, [&](int64_t, int32_t) { count.fetch_add(1); });
        CHECK(count == 10);
    };
    CHECK_FALSE(pool.is_kept_awake());
    {
        const ThreadPool::Awake outer(pool);
        {
            const ThreadPool::Awake inner(pool);
            CHECK(pool.is_kept_awake());
            run_job();
        }
        CHECK(pool.is_kept_awake());
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        run_job();
    }
    CHECK_FALSE(pool.is_kept_awake());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    run_job();
    try {
        const ThreadPool::Awake awake(pool);
        throw 1;
    } catch (int) {
    }
    CHECK_FALSE(pool.is_kept_awake());
}

TEST_CASE(
    "a pool whose workers are kept awake runs jobs with gaps, with more threads than cores and several "
    "callers") {
    const ThreadPool pool(2 * usable_core_count() + 1);
    std::vector<std::thread> callers;
    std::atomic<int64_t> sum{0};
    for (int caller = 0; caller < 3; ++caller) {
        callers.emplace_back([&] {
            for (int step = 0; step < 5; ++step) {
                const ThreadPool::Awake awake(pool);
                for (int job = 0; job < 5; ++job) {
                    std::this_thread::sleep_for(std::chrono::microseconds(100));
                    pool.run(20, [&](int64_t i, int32_t) { sum += i; });
                }
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(sum == 3 * 5 * 5 * 190);
}

// The CPU time of the process shows whether the workers sleep.
TEST_CASE("workers sleep without a scope, and do not with one where their cores are free") {
    const auto seconds_of_60_ms = [] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        const std::clock_t before = std::clock();
        std::this_thread::sleep_for(std::chrono::milliseconds(60));
        return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
    };
    for (int i = 0; i < 50; ++i) {
        const ThreadPool pool(2);
        CHECK(seconds_of_60_ms() < 0.01);
        double awake_seconds = 0.0;
        {
            const ThreadPool::Awake awake(pool);
            awake_seconds = seconds_of_60_ms();
        }
        CHECK(seconds_of_60_ms() < 0.01);
        if (awake_seconds > 0.03) return;
    }
    WARN("skipped: other programs want the worker's core all the time");
}

TEST_CASE("staying awake asks nothing of a host's threads, or of a pool without workers") {
    const ThreadPool hosts(2, HostThreads{[](void*, int64_t n_tasks, TaskFunction task, const void* context) {
                                              for (int64_t i = 0; i < n_tasks; ++i) task(context, i, 0);
                                          },
                                          nullptr});
    const ThreadPool alone(1);
    for (const ThreadPool* pool : {&hosts, &alone}) {
        const ThreadPool::Awake awake(*pool);
        int n_runs = 0;
        pool->run(3, [&](int64_t, int32_t) { ++n_runs; });
        CHECK(n_runs == 3);
    }
}
