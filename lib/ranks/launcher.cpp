// SPDX-License-Identifier: Apache-2.0
#include "ranks/launcher.h"

#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace minim::ranks {
namespace {

struct Variables {
    const char* size;
    const char* process;
    const char* local;
};

// Open MPI (also its version 5), MPICH and Intel MPI, Slurm.
constexpr Variables k_launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"},
    {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"}};

int32_t number_of(const char* name, std::string_view value) {
    int32_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < 0)
        fail(Status::invalid, "the environment variable {} of the launcher is '{}', which is no number", name,
             value);
    return number;
}

}  // namespace

Launch find_launch(const Environment& environment) {
    for (const Variables& variables : k_launchers) {
        const char* const size = environment(variables.size);
        const char* const process = environment(variables.process);
        // In an allocation of Slurm, outside of its steps, there is a number of tasks without a task.
        if (size == nullptr || process == nullptr) continue;
        const char* const local = environment(variables.local);
        const Launch launch = {.process = number_of(variables.process, process),
                               .size = number_of(variables.size, size),
                               .local = local == nullptr ? 0 : number_of(variables.local, local)};
        if (launch.process >= launch.size)
            fail(Status::invalid, "the launcher's {} is {}, which is not below {}: {}", variables.process,
                 launch.process, variables.size, launch.size);
        return launch;
    }
    return {};
}

Launch find_launch() {
    return find_launch([](const char* name) { return std::getenv(name); });
}

}  // namespace minim::ranks
