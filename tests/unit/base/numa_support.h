// SPDX-License-Identifier: Apache-2.0
// A simulated machine of two NUMA nodes, and systems that allow every placement or refuse it.
#pragma once

#include <cerrno>
#include <memory>
#include <span>

#include "base/host_memory.h"

namespace minim::test {

inline Topology two_nodes() {
    Topology topology;
    topology.nodes = {{0, {0, 1}}, {1, {2, 3}}};
    topology.n_system_nodes = 2;
    return topology;
}

// Binds nothing, and reports even pages on node 0, odd ones on node 3, and the last one as absent.
inline PlacementCalls willing_calls() {
    return {.bind_thread = [](pthread_t, std::span<const int>) { return 0; },
            .bind_memory = [](void*, uint64_t, std::span<const int32_t>) { return 0; },
            .find_pages =
                [](std::span<void* const> pages, std::span<int> nodes) {
                    for (size_t i = 0; i < pages.size(); ++i) nodes[i] = i % 2 == 0 ? 0 : 3;
                    nodes.back() = -ENOENT;
                    return 0;
                },
            .lock_memory = [](const void*, uint64_t) { return 0; }};
}

inline PlacementCalls refusing_calls() {
    return {.bind_thread = [](pthread_t, std::span<const int>) { return EPERM; },
            .bind_memory = [](void*, uint64_t, std::span<const int32_t>) { return ENOSYS; },
            .find_pages = [](std::span<void* const>, std::span<int>) { return EPERM; },
            .lock_memory = [](const void*, uint64_t) { return ENOMEM; }};
}

inline const PlacementCalls k_willing = willing_calls();
inline const PlacementCalls k_refusing = refusing_calls();

inline HostMemory memory_of(const NumaPlan& plan, bool locks = false) {
    return HostMemory(std::make_shared<const NumaPlan>(plan), locks);
}

}  // namespace minim::test
