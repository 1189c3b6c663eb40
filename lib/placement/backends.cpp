#include "placement/backends.h"

#include <utility>

#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "reference/reference_backend.h"

namespace minim::placement {
namespace {

// The threads live as long as the backend that runs on them.
struct BackendWithThreads {
    Threads threads;
    std::unique_ptr<const backend::Backend> backend;
};

}  // namespace

std::shared_ptr<const backend::Backend> make_backend(std::string_view name, Threads threads, CpuLevel level) {
    if (name.empty() || name == "cpu") {
        auto owner = std::make_shared<BackendWithThreads>();
        owner->threads = std::move(threads);
        owner->backend = cpu::make_cpu_backend(*owner->threads.prompt, *owner->threads.decode, level);
        return {owner, owner->backend.get()};
    }
    if (name == "reference") return reference::make_reference_backend();
    fail(Status::invalid, "backend '{}' is not known; cpu and reference are", name);
}

std::shared_ptr<const backend::Backend> make_backend(std::string_view name,
                                                     std::shared_ptr<const ThreadPool> threads,
                                                     CpuLevel level) {
    return make_backend(name, Threads{threads, threads}, level);
}

}  // namespace minim::placement
