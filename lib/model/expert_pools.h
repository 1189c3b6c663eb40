// SPDX-License-Identifier: Apache-2.0
// Makes the caches of experts that stages have room for.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/log.h"
#include "model/expert_profile.h"
#include "model/weights.h"
#include "runtime/expert_pool.h"
#include "runtime/placement.h"
#include "weights/reader.h"
#include "weights/spec.h"

namespace minim::model {

// The weights of a model that are in memory, and their sources. All must outlive the pools.
struct PoolSources {
    std::span<const weights::WeightSpec> specs;
    const Weights& weights;
    const weights::Reader& reader;
    std::vector<std::span<const std::byte>> host_memory;  // host memory with weights, without mapped files
};

// Returns one pool for each stage; null if the stage shares no layer's experts with the host. Throws what ExpertPool()
// throws.
std::vector<std::unique_ptr<runtime::ExpertPool>> make_expert_pools(const runtime::Placement& placement,
                                                                    const PoolSources& sources,
                                                                    runtime::ExpertMoves moves,
                                                                    const ExpertUses& uses,
                                                                    const Logger& log);

}  // namespace minim::model
