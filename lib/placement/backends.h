// SPDX-License-Identifier: Apache-2.0
// Finds backends by name. Only this file knows the built-in ones.
#pragma once

#include <memory>
#include <string_view>

#include "backend/host_device.h"
#include "base/cpu_features.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/thread_pool.h"

namespace minim::placement {

// The threads of prompts and of decoding (steps of one row), and the placement of their memory.
struct Threads {
    std::shared_ptr<const ThreadPool> prompt;
    std::shared_ptr<const ThreadPool> decode;
    HostMemory memory = {};
};

// Without a count for decoding, the count for prompts is used. make_threads() throws unsupported if memory or threads must be
// placed and the system refuses. With Numa::automatic they are then not placed, with a warning.
struct ThreadOptions {
    int32_t n_threads = 1;
    int32_t n_threads_decode = 0;
    Affinity affinity = Affinity::free;
    Numa numa = Numa::off;
};
Threads make_threads(const ThreadOptions& options, const Topology& topology, const Logger& log,
                     const PlacementCalls& calls = system_placement_calls());

// Makes the backend "cpu" (also for an empty name) or "reference", with host memory as `threads` says. Throws invalid
// for any other name.
std::shared_ptr<const backend::HostDevice> make_backend(std::string_view name, Threads threads,
                                                        CpuLevel level);
std::shared_ptr<const backend::HostDevice> make_backend(std::string_view name,
                                                        std::shared_ptr<const ThreadPool> threads,
                                                        CpuLevel level);

}  // namespace minim::placement
