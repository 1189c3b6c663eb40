// Finds backends by name: the only place that knows which ones are built in.
#pragma once

#include <memory>
#include <string_view>

#include "backend/backend.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"

namespace minim::placement {

// The threads of steps of several rows, and of steps of one.
struct Threads {
    std::shared_ptr<const ThreadPool> prompt;
    std::shared_ptr<const ThreadPool> decode;
};

// "cpu" (also for an empty name) or "reference". Throws invalid for any other.
std::shared_ptr<const backend::Backend> make_backend(std::string_view name, Threads threads, CpuLevel level);
std::shared_ptr<const backend::Backend> make_backend(std::string_view name,
                                                     std::shared_ptr<const ThreadPool> threads,
                                                     CpuLevel level);

}  // namespace minim::placement
