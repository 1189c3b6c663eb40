// SPDX-License-Identifier: Apache-2.0
#include "base/topology.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <set>
#include <vector>

#include "base/cpu_features.h"
#include "support/helpers.h"
#include "support/temporary_folder.h"

using namespace minim;
using namespace minim::test;

namespace {

using Nodes = std::vector<int32_t>;
using Rows = std::vector<int64_t>;

// Returns a topology of nodes with these numbers of cores.
Topology machine(const std::vector<int>& n_cores) {
    Topology topology;
    int core = 0;
    for (const int n : n_cores) {
        NumaNode node = {static_cast<int32_t>(topology.nodes.size()),
                         std::vector<int>(static_cast<size_t>(n))};
        std::iota(node.cores.begin(), node.cores.end(), core);
        core += n;
        topology.nodes.push_back(node);
    }
    topology.n_system_nodes = static_cast<int32_t>(n_cores.size());
    return topology;
}

}  // namespace

TEST_CASE("this machine has a node with every core that may be used") {
    const Topology topology = find_topology();
    REQUIRE_FALSE(topology.nodes.empty());
    CHECK(topology.n_system_nodes >= 1);
    std::vector<int> cores;
    for (const NumaNode& node : topology.nodes)
        cores.insert(cores.end(), node.cores.begin(), node.cores.end());
    std::ranges::sort(cores);
    CHECK(cores == usable_cores());
}

TEST_CASE("nodes without CPUs are no nodes of the system") {
    const auto count = [](const char* with_memory, const char* with_cpus) {
        const TemporaryFolder folder;
        if (with_memory != nullptr) std::ofstream(folder.path() + "/has_memory") << with_memory << "\n";
        if (with_cpus != nullptr) std::ofstream(folder.path() + "/has_cpu") << with_cpus << "\n";
        return count_system_nodes(folder.path());
    };
    CHECK(count("0", "0") == 1);
    CHECK(count("0-1", "0-1") == 2);
    CHECK(count("0-1,3", "0-1") == 2);
    CHECK(count("0,2-9", "0") == 1);  // GH200: the GPU's memory has nodes of its own
    CHECK(count("0-3", nullptr) == 4);
    CHECK(count(nullptr, nullptr) == 1);
}

TEST_CASE("machines of several nodes are told apart") {
    if (!has_topology_library()) {
        expect_error(Status::unsupported, "hwloc", [] { make_topology("numa:2 core:1 pu:1"); });
        return;
    }
    const Topology one = make_topology("core:4 pu:2");
    REQUIRE(one.nodes.size() == 1);
    CHECK(one.nodes[0].cores == std::vector<int>{0, 2, 4, 6});
    const Topology two = make_topology("package:2 numa:1 core:3 pu:1");
    REQUIRE(two.nodes.size() == 2);
    CHECK(two.nodes[1].number == 1);
    CHECK(two.nodes[1].cores == std::vector<int>{3, 4, 5});
    const Topology four = make_topology("package:2 numa:2 core:2 pu:2");
    REQUIRE(four.nodes.size() == 4);
    CHECK(four.nodes[3].cores == std::vector<int>{12, 14});
    CHECK(four.n_system_nodes == 4);
    expect_error(Status::invalid, "abacus:1", [] { make_topology("abacus:1"); });
}

TEST_CASE("threads go to nodes in proportion to their cores") {
    CHECK(nodes_of_threads(machine({4}), 3) == Nodes{0, 0, 0});
    CHECK(nodes_of_threads(machine({4, 4}), 8) == Nodes{0, 0, 0, 0, 1, 1, 1, 1});
    CHECK(nodes_of_threads(machine({4, 4}), 2) == Nodes{0, 1});
    CHECK(nodes_of_threads(machine({2, 2, 2, 2}), 4) == Nodes{0, 1, 2, 3});
    CHECK(nodes_of_threads(machine({6, 2}), 4) == Nodes{0, 0, 0, 1});
    CHECK(nodes_of_threads(machine({1, 3, 1}), 10) == Nodes{0, 0, 1, 1, 1, 1, 1, 1, 2, 2});
    CHECK(nodes_of_threads(machine({0}), 2) == Nodes{0, 0});
    for (int32_t n = 1; n < 40; ++n) {
        const Nodes nodes = nodes_of_threads(machine({5, 1, 7, 3}), n);
        CHECK(std::ssize(nodes) == n);
        CHECK(std::ranges::is_sorted(nodes));
    }
}

TEST_CASE("rows go to nodes in proportion to their threads, in whole panels") {
    CHECK(rows_of_nodes(64, {3}, 16) == Rows{0, 64});
    CHECK(rows_of_nodes(64, {2, 2}, 16) == Rows{0, 32, 64});
    CHECK(rows_of_nodes(100, {1, 1}, 16) == Rows{0, 64, 100});
    CHECK(rows_of_nodes(1536, {4, 4, 4, 4}, 16) == Rows{0, 384, 768, 1152, 1536});
    CHECK(rows_of_nodes(64, {3, 1}, 16) == Rows{0, 48, 64});
    CHECK(rows_of_nodes(64, {1, 0}, 16) == Rows{0, 64, 64});
    CHECK(rows_of_nodes(5, {1, 1}, 16) == Rows{0, 5, 5});
    CHECK(rows_of_nodes(7, {1, 1, 1}, 1) == Rows{0, 2, 5, 7});
    CHECK(rows_of_nodes(0, {1, 1}, 16) == Rows{0, 0, 0});
}

TEST_CASE("an idle thread works for every node once, first for its own, then for its neighbours") {
    const auto order = [](int32_t home, int32_t n_nodes) {
        Nodes nodes;
        for (int32_t n = 0; n < n_nodes; ++n) nodes.push_back(nth_node(home, n, n_nodes));
        return nodes;
    };
    CHECK(order(0, 1) == Nodes{0});
    CHECK(order(1, 2) == Nodes{1, 0});
    CHECK(order(0, 4) == Nodes{0, 1, 2, 3});
    CHECK(order(1, 4) == Nodes{1, 0, 3, 2});
    CHECK(order(2, 4) == Nodes{2, 3, 0, 1});
    CHECK(order(2, 3) == Nodes{2, 0, 1});
    for (int32_t n_nodes = 1; n_nodes <= k_max_nodes; ++n_nodes) {
        for (int32_t home = 0; home < n_nodes; ++home) {
            const Nodes nodes = order(home, n_nodes);
            CHECK(nodes.front() == home);
            CHECK(std::set<int32_t>(nodes.begin(), nodes.end()).size() == nodes.size());
            CHECK(*std::ranges::max_element(nodes) < n_nodes);
        }
    }
}
