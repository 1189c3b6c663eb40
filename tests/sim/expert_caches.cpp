// SPDX-License-Identifier: Apache-2.0
#include "sim/expert_caches.h"

#include <chrono>
#include <span>
#include <vector>

#include "base/error.h"
#include "support/catch.h"

namespace minim::test {

using runtime::ExpertPoolState;

std::shared_ptr<const model::Model> with_cache(const Devices& devices, uint64_t bytes,
                                               runtime::ExpertMoves moves, const std::string& path,
                                               int64_t n_host_layers, const runtime::StreamRule& rule) {
    const auto split = placement::place_on(machine_of({devices.begin(), devices.end()}),
                                           {.shares = std::vector<double>(devices.size(), 1.0),
                                            .n_host_experts = n_host_layers,
                                            .cache_bytes = bytes,
                                            .caches_host_experts = bytes > 0});
    const auto with_rule = [&](const model::Config& config, std::span<const weights::WeightSpec> weights) {
        const runtime::Placement placement = split(config, weights);
        std::vector<runtime::Stage> stages(placement.stages().begin(), placement.stages().end());
        for (runtime::Stage& stage : stages)
            if (stage.cache_bytes > 0) stage.stream = rule;
        return runtime::Placement(std::move(stages), placement.prompt_rows());
    };
    model::OpenOptions options;
    options.expert_moves = moves;
    const Logger silent;
    return std::make_shared<const model::Model>(path, with_rule, options, silent);
}

ExpertPoolState state_of(const model::Model& model) {
    ExpertPoolState total;
    for (const auto& pool : model.expert_pools()) {
        if (pool == nullptr) continue;
        const ExpertPoolState state = pool->state();
        total.n_places += state.n_places;
        total.n_hits += state.n_hits;
        total.n_misses += state.n_misses;
        total.n_moves += state.n_moves;
        total.bytes += state.bytes;
        total.moved_bytes += state.moved_bytes;
        total.n_streamed += state.n_streamed;
        total.streamed_bytes += state.streamed_bytes;
    }
    return total;
}

uint64_t all_experts(const model::Model& model) {
    uint64_t bytes = 0;
    for (const auto& pool : model.expert_pools())
        if (pool != nullptr) bytes += runtime::bytes_of_all(pool->layers());
    return bytes;
}

uint64_t one_expert(const model::Model& model) {
    return runtime::place_bytes(model.expert_pools()[0]->layers()[0]);
}

void check_failing_exchanges(int64_t n_exchanges, const std::function<void(const Devices&)>& use) {
    for (int64_t n = 1; n <= n_exchanges; ++n) {
        const Devices devices = make_devices(1, {.failing_exchange = n});
        const auto start = std::chrono::steady_clock::now();
        expect_error(Status::device_lost, "sim:0: an exchange with the host failed", [&] { use(devices); });
        CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
    }
}

}  // namespace minim::test
