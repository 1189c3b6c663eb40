// SPDX-License-Identifier: Apache-2.0
#include "model/expert_pools.h"

#include <utility>

#include "model/roles.h"

namespace minim::model {
namespace {

std::vector<runtime::PooledLayer> layers_of(std::span<const weights::WeightSpec> specs, size_t n_layer) {
    std::vector<runtime::PooledLayer> all(n_layer);
    for (const weights::WeightSpec& weight : specs) {
        if (!weight.is_expert()) continue;
        runtime::PooledLayer& layer = all[weight.layer];
        const auto role = static_cast<Role>(weight.role);
        (role == Role::gate ? layer.gate : role == Role::up ? layer.up : layer.down).push_back(&weight);
    }
    return all;
}

}  // namespace

std::vector<std::unique_ptr<runtime::ExpertPool>> make_expert_pools(const runtime::Placement& placement,
                                                                    const PoolSources& sources,
                                                                    runtime::ExpertMoves moves,
                                                                    const ExpertUses& uses,
                                                                    const Logger& log) {
    std::vector<runtime::PooledLayer> all = layers_of(sources.specs, sources.weights.layers.size());
    std::vector<std::unique_ptr<runtime::ExpertPool>> pools;
    for (const runtime::Stage& stage : placement.stages()) {
        const int64_t first = placement.shards()[pools.size()].first_layer;
        std::vector<runtime::PooledLayer> shared;
        const backend::HostDevice* host = nullptr;
        for (int64_t i = 0; i < stage.n_layer; ++i) {
            const int64_t layer = first + i;
            if (!stage.shares_experts_of(i) || all[layer].gate.empty()) continue;  // a dense layer has none
            host = stage.host_of_experts(i);
            shared.push_back(std::move(all[layer]));
            shared.back().layer = first + i;
            shared.back().on_host = &sources.weights.layers[layer].experts;
        }
        std::unique_ptr<runtime::ExpertPool>& pool = pools.emplace_back();
        if (host == nullptr) continue;  // the stage shares no layer's experts
        pool = std::make_unique<runtime::ExpertPool>(
            *stage.backend, *host, std::move(shared), first, sources.reader,
            runtime::ExpertPoolOptions{stage.cache_bytes, moves, uses, sources.host_memory, stage.stream},
            log);
    }
    return pools;
}

}  // namespace minim::model
