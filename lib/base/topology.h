// SPDX-License-Identifier: Apache-2.0
// The NUMA nodes of the machine with their cores, and the plans made from them: which thread works on which node, which
// rows of a matrix each node has, and whose work an idle thread takes over. The plans are pure functions of numbers, so a
// machine with several nodes and a test that simulates them get the same plans.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minim {

// The maximum number of nodes that one process can use; jobs have a queue for each.
inline constexpr int32_t k_max_nodes = 16;

struct NumaNode {
    int32_t number = 0;      // the system's number of the node; numbers may have gaps
    std::vector<int> cores;  // the cores that this process may use: one logical CPU of each, ascending
};

struct Topology {
    std::vector<NumaNode> nodes;  // the nodes with cores that this process may use; at least one
    int32_t n_system_nodes = 1;   // nodes with memory in the system: more than nodes.size() without hwloc
};

// Returns the number of nodes with both CPUs and memory, from the system's description in `folder` (/sys/devices/system/node): the memory
// of a GPU may be a node too (GH200). At least 1.
int32_t count_system_nodes(const std::string& folder);

// Returns the topology of this machine. Without hwloc, or if it fails, all cores belong to one node.
Topology find_topology();

// Returns a simulated machine, from hwloc's description: "package:2 numa:2 core:4 pu:1". Throws invalid for a bad description,
// and unsupported without hwloc.
Topology make_topology(const std::string& description);

bool has_topology_library() noexcept;

// Returns the node of each of n_threads threads, ascending: in proportion to the cores of the nodes.
std::vector<int32_t> nodes_of_threads(const Topology& topology, int32_t n_threads);

// Returns the first of n_rows rows of each node, and n_rows at the end: in proportion to the threads of the nodes, in
// multiples of `granule` rows.
std::vector<int64_t> rows_of_nodes(int64_t n_rows, const std::vector<int32_t>& n_threads, int64_t granule);

// Returns the n-th node that a thread of node `home` takes work from, n = 0 .. n_nodes - 1. The first is `home`. Nodes whose
// numbers differ from it only in the lowest bits come next, because the nodes of one package have consecutive numbers.
int32_t nth_node(int32_t home, int32_t n, int32_t n_nodes) noexcept;

}  // namespace minim
