// Finds backends by name: the only place that knows which ones are built in.
#pragma once

#include <memory>
#include <string_view>

#include "backend/backend.h"
#include "base/cpu_features.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/thread_pool.h"

namespace minim::placement {

// The threads of steps of several rows, and of steps of one, and how the memory they work on is placed.
struct Threads {
    std::shared_ptr<const ThreadPool> prompt;
    std::shared_ptr<const ThreadPool> decode;
    HostMemory memory = {};
};

// Without a count for decoding it is that of the prompt. Throws unsupported where memory or threads are to be placed and
// the system refuses; for Numa::automatic they are then not placed, with a warning.
struct ThreadOptions {
    int32_t n_threads = 1;
    int32_t n_threads_decode = 0;
    Affinity affinity = Affinity::free;
    Numa numa = Numa::off;
};
Threads make_threads(const ThreadOptions& options, const Topology& topology, const Logger& log,
                     const PlacementCalls& calls = system_placement_calls());

// "cpu" (also for an empty name) or "reference", which takes memory of the host as `threads` say. Throws invalid for any
// other name.
std::shared_ptr<const backend::Backend> make_backend(std::string_view name, Threads threads, CpuLevel level);
std::shared_ptr<const backend::Backend> make_backend(std::string_view name,
                                                     std::shared_ptr<const ThreadPool> threads,
                                                     CpuLevel level);

}  // namespace minim::placement
