// SPDX-License-Identifier: Apache-2.0
#include "base/topology.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <memory>
#include <set>

#include "base/cpu_features.h"
#include "base/error.h"
#if defined(MINIM_HAS_HWLOC)
#include <hwloc.h>
#endif

namespace minim {
namespace {

// Returns the numbers that a file of the system lists: 0, 1 and 4 for "0-1,4". None if it cannot be read.
std::set<int> numbers_of_list(const std::string& path) {
    std::set<int> numbers;
    std::FILE* file = std::fopen(path.c_str(), "re");
    if (file == nullptr) return numbers;
    int first = 0;
    while (std::fscanf(file, "%d", &first) == 1) {
        int last = first;
        int next = std::fgetc(file);
        if (next == '-' && std::fscanf(file, "%d", &last) == 1) next = std::fgetc(file);
        for (int number = first; number <= last; ++number) numbers.insert(number);
        if (next != ',') break;
    }
    std::fclose(file);
    return numbers;
}

Topology one_node() {
    Topology topology;
    topology.nodes.push_back({0, usable_cores()});
    topology.n_system_nodes = count_system_nodes("/sys/devices/system/node");
    return topology;
}

#if defined(MINIM_HAS_HWLOC)
struct Destroy {
    void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using Handle = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, Destroy>;

Handle make_handle() {
    hwloc_topology_t topology = nullptr;
    return Handle(hwloc_topology_init(&topology) == 0 ? topology : nullptr);
}

// Returns the nodes that have at least one of the cores. A core with several nodes (two kinds of memory) belongs to the first.
std::vector<NumaNode> nodes_with(hwloc_topology_t topology, const std::vector<int>& cores) {
    std::vector<NumaNode> nodes;
    std::vector<int> left = cores;
    const int n = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
    for (int i = 0; i < n; ++i) {
        const hwloc_obj_t node =
            hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
        const auto is_beside = [&](int core) {
            return hwloc_bitmap_isset(node->cpuset, static_cast<unsigned>(core)) != 0;
        };
        NumaNode found = {static_cast<int32_t>(node->os_index), {}};
        std::ranges::copy_if(left, std::back_inserter(found.cores), is_beside);
        std::erase_if(left, is_beside);
        if (!found.cores.empty()) nodes.push_back(std::move(found));
    }
    return nodes;
}
#endif

}  // namespace

int32_t count_system_nodes(const std::string& folder) {
    const std::set<int> with_memory = numbers_of_list(folder + "/has_memory");
    const std::set<int> with_cpus = numbers_of_list(folder + "/has_cpu");
    const auto count = std::ranges::count_if(
        with_memory, [&](int node) { return with_cpus.empty() || with_cpus.contains(node); });
    return std::max(static_cast<int32_t>(count), 1);
}

#if defined(MINIM_HAS_HWLOC)

bool has_topology_library() noexcept {
    return true;
}

Topology find_topology() {
    Topology found = one_node();
    if (found.n_system_nodes == 1) return found;
    const Handle handle = make_handle();
    // The topology has only what this process may use. A description in hwloc's environment variables is ignored, because memory
    // cannot be bound to the nodes that it describes.
    if (handle == nullptr || hwloc_topology_load(handle.get()) != 0 ||
        hwloc_topology_is_thissystem(handle.get()) == 0) {
        return found;
    }
    std::vector<NumaNode> nodes = nodes_with(handle.get(), usable_cores());
    if (!nodes.empty()) found.nodes = std::move(nodes);
    return found;
}

Topology make_topology(const std::string& description) {
    const Handle handle = make_handle();
    if (handle == nullptr || hwloc_topology_set_synthetic(handle.get(), description.c_str()) != 0 ||
        hwloc_topology_load(handle.get()) != 0) {
        fail(Status::invalid, "'{}' does not describe a machine (example: 'package:2 numa:2 core:4 pu:1')",
             description);
    }
    std::vector<int> cores;
    const int n = hwloc_get_nbobjs_by_type(handle.get(), HWLOC_OBJ_CORE);
    for (int i = 0; i < n; ++i) {
        const hwloc_obj_t core =
            hwloc_get_obj_by_type(handle.get(), HWLOC_OBJ_CORE, static_cast<unsigned>(i));
        cores.push_back(hwloc_bitmap_first(core->cpuset));
    }
    Topology made;
    made.nodes = nodes_with(handle.get(), cores);
    made.n_system_nodes = hwloc_get_nbobjs_by_type(handle.get(), HWLOC_OBJ_NUMANODE);
    return made;
}

#else

bool has_topology_library() noexcept {
    return false;
}

Topology find_topology() {
    return one_node();
}

Topology make_topology(const std::string& description) {
    fail(Status::unsupported, "this build has no hwloc, which '{}' needs", description);
}

#endif

std::vector<int32_t> nodes_of_threads(const Topology& topology, int32_t n_threads) {
    int64_t n_cores = 0;
    for (const NumaNode& node : topology.nodes) n_cores += std::ssize(node.cores);
    if (n_cores == 0) return std::vector<int32_t>(n_threads, 0);
    std::vector<int32_t> nodes;
    int64_t cores_before = 0;
    for (size_t i = 0; i < topology.nodes.size(); ++i) {
        cores_before += std::ssize(topology.nodes[i].cores);
        // The end of each node follows from the cores up to it, so that rounding errors do not add up.
        const int64_t end = (cores_before * n_threads + n_cores / 2) / n_cores;
        while (std::ssize(nodes) < end) nodes.push_back(static_cast<int32_t>(i));
    }
    return nodes;
}

std::vector<int64_t> rows_of_nodes(int64_t n_rows, const std::vector<int32_t>& n_threads, int64_t granule) {
    int64_t all = 0;
    for (const int32_t n : n_threads) all += n;
    const int64_t n_granules = (n_rows + granule - 1) / granule;
    std::vector<int64_t> first = {0};
    int64_t before = 0;
    for (const int32_t n : n_threads) {
        before += n;
        const int64_t end = all == 0 ? n_granules : (n_granules * before + all / 2) / all;
        first.push_back(std::min(end * granule, n_rows));
    }
    return first;
}

int32_t nth_node(int32_t home, int32_t n, int32_t n_nodes) noexcept {
    // home ^ 0, home ^ 1 ... visits every number below the next power of two once.
    const auto all = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(n_nodes)));
    for (int32_t step = 0; step < all; ++step) {
        const int32_t node = home ^ step;
        if (node < n_nodes && n-- == 0) return node;
    }
    return home;
}

}  // namespace minim
