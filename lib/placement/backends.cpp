// SPDX-License-Identifier: Apache-2.0
#include "placement/backends.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "reference/reference_backend.h"

namespace minim::placement {
namespace {

// The threads live as long as the backend that runs on them.
struct BackendWithThreads {
    Threads threads;
    std::unique_ptr<const backend::HostDevice> backend;
};

std::shared_ptr<const ThreadPool> make_pool(const NumaPlan& plan, int32_t n_threads, Affinity affinity) {
    return std::make_shared<const ThreadPool>(plan_threads(plan, n_threads, affinity), *plan.calls);
}

}  // namespace

Threads make_threads(const ThreadOptions& options, const Topology& topology, const Logger& log,
                     const PlacementCalls& calls) {
    const int32_t n_decode = options.n_threads_decode == 0 ? options.n_threads : options.n_threads_decode;
    Numa numa = options.numa;
    while (true) {
        const auto plan = std::make_shared<const NumaPlan>(plan_numa(numa, topology, n_decode, log, calls));
        Threads threads;
        threads.prompt = make_pool(*plan, options.n_threads, options.affinity);
        threads.decode =
            n_decode == options.n_threads ? threads.prompt : make_pool(*plan, n_decode, options.affinity);
        threads.memory = HostMemory(plan);
        const int error = std::max(threads.prompt->binding_error(), threads.decode->binding_error());
        if (error == 0) return threads;
        if (plan->mode == Numa::off) {
            log.warning("threads run on any core: the system does not pin them ({})", std::strerror(error));
            return threads;
        }
        if (options.numa != Numa::automatic)
            fail(Status::unsupported, "numa {}: the system does not bind threads to a node's cores: {}",
                 to_string(options.numa), std::strerror(error));
        log.warning("threads are not placed by node: the system does not bind them ({})",
                    std::strerror(error));
        numa = Numa::off;
    }
}

std::shared_ptr<const backend::HostDevice> make_backend(std::string_view name, Threads threads,
                                                        CpuLevel level) {
    if (name.empty() || name == "cpu") {
        auto owner = std::make_shared<BackendWithThreads>();
        owner->threads = std::move(threads);
        owner->backend = cpu::make_cpu_backend(*owner->threads.prompt, *owner->threads.decode, level,
                                               owner->threads.memory);
        return {owner, owner->backend.get()};
    }
    if (name == "reference") return reference::make_reference_backend(threads.memory);
    fail(Status::invalid, "backend '{}' is not known; cpu and reference are", name);
}

std::shared_ptr<const backend::HostDevice> make_backend(std::string_view name,
                                                        std::shared_ptr<const ThreadPool> threads,
                                                        CpuLevel level) {
    return make_backend(name, Threads{threads, threads}, level);
}

}  // namespace minim::placement
