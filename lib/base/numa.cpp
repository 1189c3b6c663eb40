// SPDX-License-Identifier: Apache-2.0
#include "base/numa.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/buffer.h"
#include "base/error.h"
#include "base/format_text.h"

namespace minim {
namespace {

// Returns why memory cannot be placed on the nodes; empty if it can.
std::string refusal(const Topology& topology, const PlacementCalls& calls) {
    const size_t n_nodes = topology.nodes.size();
    if (n_nodes > static_cast<size_t>(k_max_nodes))
        return format_text("the machine has {} NUMA nodes, at most {} are supported", n_nodes, k_max_nodes);
    if (n_nodes == 1 && topology.n_system_nodes > 1 && !has_topology_library())
        return format_text("the machine has {} NUMA nodes, and this build lacks hwloc, which detects them",
                           topology.n_system_nodes);
    const Buffer probe(4096, "a page", Buffer::Presence::later);
    for (const NumaNode& node : topology.nodes) {
        const int32_t number = node.number;
        if (const int code = calls.bind_memory(probe.data(), probe.size(), {&number, 1}); code != 0)
            return format_text(
                "the system refuses to place memory on NUMA node {}: {}; a container needs CAP_SYS_NICE or a "
                "seccomp profile that allows mbind",
                number, std::strerror(code));
    }
    return {};
}

}  // namespace

std::string_view to_string(Numa numa) noexcept {
    switch (numa) {
        case Numa::automatic:
            return "auto";
        case Numa::off:
            return "off";
        case Numa::interleave:
            return "interleave";
        case Numa::split:
            return "split";
    }
    return "";
}

std::vector<int32_t> NumaPlan::node_numbers() const {
    std::vector<int32_t> numbers;
    for (const NumaNode& node : topology.nodes) numbers.push_back(node.number);
    return numbers;
}

NumaPlan plan_numa(Numa wanted, Topology topology, int32_t n_decode_threads, const Logger& log,
                   const PlacementCalls& calls) {
    NumaPlan plan;
    plan.calls = &calls;
    plan.n_threads.resize(topology.nodes.size());
    for (const int32_t node : nodes_of_threads(topology, n_decode_threads)) ++plan.n_threads[node];
    plan.topology = std::move(topology);
    const bool has_several = plan.topology.nodes.size() > 1 || plan.topology.n_system_nodes > 1;
    if (wanted == Numa::off || (wanted == Numa::automatic && !has_several)) return plan;
    const std::string why_not = refusal(plan.topology, calls);
    if (!why_not.empty()) {
        if (wanted != Numa::automatic) fail(Status::unsupported, "numa {}: {}", to_string(wanted), why_not);
        log.warning("memory is not placed by node: {}", why_not);
        return plan;
    }
    // The process may be restricted to one of several nodes.
    if (wanted == Numa::automatic && plan.topology.nodes.size() == 1) return plan;
    plan.mode = wanted == Numa::automatic ? Numa::split : wanted;
    return plan;
}

ThreadPlan plan_threads(const NumaPlan& plan, int32_t n_threads, Affinity affinity) {
    ThreadPlan threads;
    threads.node_numbers = plan.node_numbers();
    const bool by_node = plan.mode != Numa::off;
    if (!by_node && affinity == Affinity::free) {
        threads.threads.resize(n_threads);
        return threads;
    }
    std::vector<size_t> n_before(plan.topology.nodes.size());
    for (const int32_t node : nodes_of_threads(plan.topology, n_threads)) {
        const std::vector<int>& cores = plan.topology.nodes[node].cores;
        const size_t nth = n_before[node]++;
        ThreadPlace& place = threads.threads.emplace_back();
        place.node = node;
        if (affinity == Affinity::free) {
            place.cores = cores;
        } else if (!cores.empty()) {
            place.cores = {cores[nth % cores.size()]};
        }
    }
    return threads;
}

}  // namespace minim
