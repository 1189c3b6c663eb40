// Threads and memory on a machine with several memory nodes: what was asked for, and what comes of it. Worker threads
// are bound to a node each; memory is spread over the nodes page by page, and where rows are split each node also
// holds the rows of the weights that its threads work on.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/placement_calls.h"
#include "base/topology.h"

namespace minim {

enum class Numa {
    automatic,  // split where there are several nodes and the system lets them be used, else off
    off,
    interleave,
    split,
};

std::string_view to_string(Numa numa) noexcept;

enum class Affinity { free, pinned };

struct ThreadPlace {
    int32_t node = 0;        // index among the nodes of the plan
    std::vector<int> cores;  // where the thread may run; empty: anywhere
};

// Of one pool: a place a thread, the calling thread's first, which nobody binds.
struct ThreadPlan {
    std::vector<ThreadPlace> threads;
    std::vector<int32_t> node_numbers = {0};  // the system's, a node of the plan
};

struct NumaPlan {
    Numa mode = Numa::off;  // never automatic
    Topology topology;
    std::vector<int32_t> n_threads;  // that decode, a node: rows are split in proportion
    const PlacementCalls* calls = &system_placement_calls();

    bool splits_rows() const noexcept { return mode == Numa::split; }
    std::vector<int32_t> node_numbers() const;
};

// Throws unsupported where what is asked for cannot be had, saying why: no hwloc on a machine with several nodes, more
// nodes than k_most_nodes, a system that refuses. `automatic` is off then, with a warning where there is something to
// lose.
NumaPlan plan_numa(Numa wanted, Topology topology, int32_t n_decode_threads, const Logger& log,
                   const PlacementCalls& calls = system_placement_calls());

// Free threads run anywhere, on the cores of their node where memory is placed; pinned ones on a core each, of those
// of their node.
ThreadPlan plan_threads(const NumaPlan& plan, int32_t n_threads, Affinity affinity);

}  // namespace minim
