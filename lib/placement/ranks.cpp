// SPDX-License-Identifier: Apache-2.0
#include "placement/ranks.h"

#include <numeric>
#include <utility>

#include "base/format_text.h"
#include "runtime/thread_transport.h"

namespace minim::placement {

using runtime::RankShare;
using runtime::Shard;

std::vector<Shard> shards_of(const ParallelPlan& plan, int64_t n_layer, int32_t process, int64_t n_devices,
                             const RankDevices& devices) {
    const int64_t stage = plan.pipeline == 1 ? 0 : plan.pipeline - 1 - process;
    // The first stages have a layer more if the layers cannot be divided evenly.
    const auto first_layer = [&](int64_t s) {
        return s * (n_layer / plan.pipeline) + std::min(s, n_layer % plan.pipeline);
    };
    std::vector<Shard> shards;
    for (int64_t d = 0; d < n_devices; ++d) {
        const int64_t rank = plan.pipeline == 1 ? process * n_devices + d : d;
        const RankShare share = {.rank = static_cast<int32_t>(rank),
                                 .tensor = static_cast<int32_t>(plan.tensor),
                                 .expert_groups = static_cast<int32_t>(plan.expert_groups),
                                 .expert_parts = static_cast<int32_t>(plan.expert_parts)};
        Shard shard = {.backend = devices.empty() ? nullptr : devices[d], .share = share};
        shard.first_layer = first_layer(stage);
        shard.n_layer = first_layer(stage + 1) - shard.first_layer;
        shard.expert_layers.resize(shard.n_layer);
        std::iota(shard.expert_layers.begin(), shard.expert_layers.end(), shard.first_layer);
        shard.has_embedding = stage == 0;
        shard.has_output = stage + 1 == plan.pipeline && (share.shares_heads() || rank == 0);
        shards.push_back(std::move(shard));
    }
    return shards;
}

model::Model::Place place_on_ranks(const ParallelRequest& request, RankDevices devices,
                                   model::OpenOptions& options) {
    options.connect = [](const model::Config&, const runtime::Placement& placement, uint64_t) {
        model::RankNet net;
        const auto n_ranks = static_cast<int32_t>(placement.shards().size());
        net.transports = runtime::connect_threads(n_ranks);
        for (int32_t r = 0; r < n_ranks; ++r) {
            const Shard& shard = placement.shards()[r];
            net.links.push_back({.name = format_text("rank {} ({})", r, shard.backend->name()),
                                 .share = shard.share,
                                 .group = net.transports[r].get()});
        }
        return net;
    };
    return [request, devices = std::move(devices)](const model::Config& config,
                                                   std::span<const weights::WeightSpec> weights) {
        const ParallelPlan plan = plan_parallel(request, config, weights);
        check_ranks(plan, 1, std::ssize(devices));
        return runtime::Placement::of_ranks(shards_of(plan, config.n_layer, 0, std::ssize(devices), devices),
                                            config.n_layer, 0);
    };
}

}  // namespace minim::placement
