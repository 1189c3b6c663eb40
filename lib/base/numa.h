// SPDX-License-Identifier: Apache-2.0
// Plans threads and memory on a machine with several NUMA nodes, as a caller requests. Each worker thread is
// bound to a node. Memory is interleaved over the nodes, page by page; with split rows, each node has the weight
// rows that its threads work on.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/placement_calls.h"
#include "base/topology.h"

namespace minim {

enum class Numa {
    automatic,  // split if there are several nodes and the system allows placement, else off
    off,
    interleave,
    split,
};

std::string_view to_string(Numa numa) noexcept;

enum class Affinity { free, pinned };

struct ThreadPlace {
    int32_t node = 0;        // index among the nodes of the plan
    std::vector<int> cores;  // the cores that the thread may run on; empty: any
};

// The places of the threads of one pool: one place for each thread. The first one is the place of the calling thread, which is
// not bound.
struct ThreadPlan {
    std::vector<ThreadPlace> threads;
    std::vector<int32_t> node_numbers = {0};  // the system's number of each node of the plan
};

struct NumaPlan {
    Numa mode = Numa::off;  // never automatic
    Topology topology;
    std::vector<int32_t> n_threads;  // decode threads of each node: rows are split in proportion
    const PlacementCalls* calls = &system_placement_calls();

    bool splits_rows() const noexcept { return mode == Numa::split; }
    std::vector<int32_t> node_numbers() const;
};

// Makes the plan. Throws unsupported, with the reason, if the request is not possible: there is no hwloc on a machine with
// several nodes, there are more nodes than k_max_nodes, or the system refuses. `automatic` becomes `off` in these cases, with
// a warning if that costs speed.
NumaPlan plan_numa(Numa wanted, Topology topology, int32_t n_decode_threads, const Logger& log,
                   const PlacementCalls& calls = system_placement_calls());

// Plans the threads of a pool. Free threads run on any core, or on any core of their node if memory is placed. Each pinned thread
// runs on a core of its own, on its node.
ThreadPlan plan_threads(const NumaPlan& plan, int32_t n_threads, Affinity affinity);

}  // namespace minim
