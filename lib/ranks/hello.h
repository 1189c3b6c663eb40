// SPDX-License-Identifier: Apache-2.0
// What the processes of a launch compare when they open a model together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "ranks/processes.h"

namespace minim::ranks {

struct Hello {
    // The same in all processes.
    std::string library_version;
    std::string plugin_build;
    std::string fingerprint;         // of the model
    std::string options;             // those that must agree, in words
    std::string plan;                // how ranks share the model
    std::string n_devices;           // ranks of a process
    std::string device_kind;         // "cpu", "cuda"
    std::string compute_capability;  // of CUDA devices
    // For messages.
    std::string device_names;      // separated by commas
    int32_t n_cores = 0;           // logical CPUs that the process may use
    int32_t n_possible_cores = 0;  // that it could use if it were not bound to some of them
};

// Returns the cores of this process for its Hello.
void set_cores(Hello& hello);

// Sends this process's Hello to all others and returns those of all. Throws invalid in all processes, naming one that differs with
// both values, if they are not of one kind; they have left then. Warns if this process is bound to fewer cores than its share.
std::vector<Hello> exchange(Processes& processes, const Hello& own, const Logger& log);

// Waits until all processes have called it.
void meet(Processes& processes);

}  // namespace minim::ranks
