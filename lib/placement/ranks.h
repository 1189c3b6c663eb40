// SPDX-License-Identifier: Apache-2.0
// Opens a model on ranks: what each rank has (parallel.h says), and what connects it with the others.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/model.h"
#include "placement/parallel.h"
#include "runtime/placement.h"

namespace minim::placement {

// The devices of this process, one a rank. Every process has as many.
using RankDevices = std::vector<std::shared_ptr<const backend::Backend>>;

// Returns what the ranks of a process have. `devices`: empty for another process. The ranks of a pipeline's last stage are those of
// process 0.
std::vector<runtime::Shard> shards_of(const ParallelPlan& plan, int64_t n_layer, int32_t process,
                                      int64_t n_devices, const RankDevices& devices = {});

// Sets how a model is placed on ranks of this process alone: returns the function that places it, and sets options.connect. The
// function throws as plan_parallel() and check_ranks().
model::Model::Place place_on_ranks(const ParallelRequest& request, RankDevices devices,
                                   model::OpenOptions& options);

}  // namespace minim::placement
