// SPDX-License-Identifier: Apache-2.0
#include "base/numa.h"

#include <cerrno>
#include <vector>

#include "base/thread_pool.h"
#include "support/helpers.h"
#include "unit/base/numa_support.h"

using namespace minim;
using namespace minim::test;

TEST_CASE("what is wanted is what is planned, and auto splits rows only where there are several nodes") {
    const Logger log;
    Topology one = two_nodes();
    one.nodes.pop_back();
    one.n_system_nodes = 1;
    CHECK(plan_numa(Numa::automatic, one, 2, log, k_willing).mode == Numa::off);
    CHECK(plan_numa(Numa::split, one, 2, log, k_willing).mode == Numa::split);
    CHECK(plan_numa(Numa::off, two_nodes(), 2, log, k_refusing).mode == Numa::off);
    CHECK(plan_numa(Numa::interleave, two_nodes(), 2, log, k_willing).mode == Numa::interleave);
    const NumaPlan plan = plan_numa(Numa::automatic, two_nodes(), 3, log, k_willing);
    CHECK(plan.mode == Numa::split);
    CHECK(plan.n_threads == std::vector<int32_t>{2, 1});
    CHECK(plan.node_numbers() == std::vector<int32_t>{0, 1});
}

TEST_CASE(
    "a system that does not place memory is an error that says why, or a warning where nobody insists") {
    Lines lines;
    CHECK(plan_numa(Numa::automatic, two_nodes(), 2, lines.log, k_refusing).mode == Numa::off);
    CHECK(lines.holding("CAP_SYS_NICE") == 1);
    for (const Numa numa : {Numa::interleave, Numa::split})
        expect_error(Status::unsupported, "refuses to place memory on NUMA node 0",
                     [&] { plan_numa(numa, two_nodes(), 2, lines.log, k_refusing); });
}

TEST_CASE("more nodes than a job has queues are an error, or a warning") {
    Topology many;
    for (int i = 0; i <= k_max_nodes; ++i) many.nodes.push_back({i, {i}});
    many.n_system_nodes = k_max_nodes + 1;
    Lines lines;
    expect_error(Status::unsupported, "17 NUMA nodes",
                 [&] { plan_numa(Numa::split, many, 2, lines.log, k_willing); });
    CHECK(plan_numa(Numa::automatic, many, 2, lines.log, k_willing).mode == Numa::off);
    CHECK(lines.holding("17 NUMA nodes") == 1);
}

TEST_CASE("threads are bound to the cores of their node, or to one of them") {
    const NumaPlan plan = plan_numa(Numa::split, two_nodes(), 4, Logger(), k_willing);
    const ThreadPlan free = plan_threads(plan, 4, Affinity::free);
    REQUIRE(free.threads.size() == 4);
    CHECK(free.threads[1].cores == std::vector<int>{0, 1});
    CHECK(free.threads[2].node == 1);
    CHECK(free.threads[2].cores == std::vector<int>{2, 3});
    const ThreadPlan pinned = plan_threads(plan, 6, Affinity::pinned);
    CHECK(pinned.threads[1].cores == std::vector<int>{1});
    CHECK(pinned.threads[2].cores == std::vector<int>{0});
    CHECK(pinned.threads[3].cores == std::vector<int>{2});
    CHECK(pinned.threads[5].node == 1);
    NumaPlan off = plan;
    off.mode = Numa::off;
    CHECK(plan_threads(off, 2, Affinity::free).threads[1].cores.empty());
}

TEST_CASE("a worker that cannot be bound is told, and works") {
    PlacementCalls calls = k_willing;
    calls.bind_thread = k_refusing.bind_thread;
    const NumaPlan plan = plan_numa(Numa::split, two_nodes(), 2, Logger(), calls);
    const ThreadPool pool(plan_threads(plan, 2, Affinity::free), calls);
    CHECK(pool.binding_error() == EPERM);
    std::vector<int> runs(20);
    pool.run(20, [&](int64_t i, int32_t) { ++runs[static_cast<size_t>(i)]; });
    CHECK(runs == std::vector<int>(20, 1));
    CHECK(ThreadPool(plan_threads(plan, 2, Affinity::free), k_willing).binding_error() == 0);
}
