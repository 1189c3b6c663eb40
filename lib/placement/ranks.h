// SPDX-License-Identifier: Apache-2.0
// Opens a model on ranks: what each rank has (parallel.h says), and what connects it with the others.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "model/model.h"
#include "placement/facts.h"
#include "placement/parallel.h"
#include "placement/request.h"
#include "runtime/placement.h"

namespace minim::placement {

// The devices of this process, one a rank. Every process has as many.
using RankDevices = std::vector<std::shared_ptr<const backend::Backend>>;

// Returns what the ranks of a process have. `devices`: empty for another process. The ranks of a pipeline's last stage are those of
// process 0.
std::vector<runtime::Shard> shards_of(const ParallelPlan& plan, int64_t n_layer, int32_t process,
                                      int64_t n_devices, const RankDevices& devices = {});

// Returns the devices that this process takes of all usable ones if the caller names none: as many as it has ranks, and others than the
// other processes of its machine if there are enough. All of them if the request does not say how many ranks there are.
std::vector<DeviceBudget> devices_for(const ParallelRequest& request, std::vector<DeviceBudget> usable);

// Returns the devices of an open machine as ranks: those named, or the host's backend. Throws invalid for what the request asks for
// beside ranks and cannot have with them, and for devices of different kinds.
RankDevices rank_devices(const Request& request, const Machine& machine);

struct RankOptions {
    ParallelRequest request;
    RankDevices devices = {};
    // How long a rank may not answer within a step.
    std::chrono::milliseconds timeout{30'000};
    // What must be the same in all processes besides the model and the request: the library's version, and other options.
    std::string version = {};
    std::string options = {};
    bool compares_choices = false;  // RankLinks::compares_choices
    const Logger* log;              // must outlive the model
};

// Sets how a model is placed on ranks: returns the function that places it, and sets options.connect. If a launcher has started
// several processes, the ranks are those of all of them, and each process opens the model. The function throws as plan_parallel()
// and check_ranks(), and what connecting the processes throws: unsupported, invalid if they differ, peer_lost.
model::Model::Place place_on_ranks(const RankOptions& ranks, model::OpenOptions& options);

}  // namespace minim::placement
