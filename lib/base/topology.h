// The memory nodes of the machine (NUMA) and the cores beside each, and the plans made from them: which thread works
// beside which node, which rows of a matrix lie there, and whose work an idle thread takes over. The plans are plain
// functions of numbers: they are the same on the machine that has the nodes and in a test that makes them up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minim {

// More nodes than any machine has that one process would want to fill; jobs keep a queue for each.
inline constexpr int32_t k_most_nodes = 16;

struct MemoryNode {
    int32_t number = 0;      // the system's, which need not be consecutive
    std::vector<int> cores;  // processors that this process may use, one a core, ascending
};

struct Topology {
    std::vector<MemoryNode> nodes;  // those with cores of ours, at least one
    int32_t n_system_nodes =
        1;  // with memory, as the system tells: more where they cannot be told apart here
};

// Of this machine. Without hwloc, or where it fails, all cores are of one node.
Topology find_topology();

// A machine as hwloc describes it: "package:2 numa:2 core:4 pu:1". Throws invalid where it is none, unsupported without
// hwloc.
Topology make_topology(const std::string& description);

bool has_topology_library() noexcept;

// Nodes of n_threads threads, ascending: in proportion to the cores of the nodes.
std::vector<int32_t> nodes_of_threads(const Topology& topology, int32_t n_threads);

// The first of n_rows rows of each node, and the end: in proportion to the threads beside the nodes, in runs of
// `granule` rows.
std::vector<int64_t> rows_of_nodes(int64_t n_rows, const std::vector<int32_t>& n_threads, int64_t granule);

// The node whose work a thread beside node `home` takes as its n-th, n = 0 .. n_nodes - 1: its own, then the others,
// those first whose number differs in the lowest bits, as nodes of one package have consecutive numbers.
int32_t nth_node(int32_t home, int32_t n, int32_t n_nodes) noexcept;

}  // namespace minim
