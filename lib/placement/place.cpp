// SPDX-License-Identifier: Apache-2.0
#include "placement/place.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/device_memory.h"
#include "base/error.h"
#include "base/format_text.h"
#include "base/memory_info.h"
#include "model/architecture.h"
#include "model/weights.h"
#include "placement/planner.h"
#include "placement/predict.h"
#include "placement/unified.h"
#include "runtime/step_space.h"
#include "weights/device_target.h"

namespace minim::placement {
namespace {

using runtime::Placement;
using runtime::Shard;
using runtime::Stage;

// The part of a device's memory that stays free.
constexpr uint64_t k_spare_part = 100;
// Stands for the memory of a device that has no limit.
constexpr uint64_t k_unlimited = uint64_t{1} << 60;

constexpr int64_t k_any_context = 8192;
constexpr int64_t k_min_whole_context = 2048;
constexpr int64_t k_min_context = 256;
// Rows of the largest step that anybody computes a prompt in.
constexpr int64_t k_max_rows = 8192;

// A device has no room for its layers.
struct Shortage {
    Shard shard;
    uint64_t needed = 0;
    uint64_t available = 0;
};

// longest_context: that fits; 0: not known.
[[noreturn]] void fail_no_room(const Shortage& shortage, int64_t longest_context) {
    const auto& [shard, needed, available] = shortage;
    ErrorFacts facts;
    facts.requested = needed > INT64_MAX ? INT64_MAX : static_cast<int64_t>(needed);
    facts.available = static_cast<int64_t>(available);
    facts.device = DeviceName(shard.backend->name());
    throw Error(
        Status::out_of_device_memory, Reason::none,
        format_text(
            "{}: layers {}-{} need {} bytes {}, for weights, KV cache and work "
            "space; {} bytes available{}{}{}",
            shard.backend->name(), shard.first_layer, shard.first_layer + shard.n_layer - 1, needed,
            shard.backend->shares_host_memory() ? "with all experts" : "without experts", available,
            shard.backend->shares_host_memory() ? " in the memory that it shares with the host" : "",
            longest_context > 0 ? format_text("; a context of {} tokens would fit", longest_context) : "",
            backend::budget_text(shard.backend->memory())),
        facts);
}

bool caches(const Plan& plan) {
    return std::ranges::any_of(plan.places, [](const PlannedPlace& place) { return place.cache_bytes > 0; });
}

class Opening {
  public:
    Opening(Machine machine, Request request, const model::Config& config,
            std::span<const weights::WeightSpec> weights)
        : machine_(std::move(machine)),
          request_(std::move(request)),
          config_(config),
          weights_(weights),
          rules_(read_rules(request_, machine_, config)) {
        for (int64_t d = 0; d < machine_.host_place(); ++d)
            machine_.devices[d].is_unified = machine_.backends[d]->shares_host_memory();
        check_unified(request_, machine_);
        machine_.host.memory_bytes = available_memory_bytes();
        for (int64_t d = 0; d < machine_.host_place(); ++d) {
            const uint64_t available = machine_.backends[d]->available_bytes();
            machine_.devices[d].memory_bytes = std::min(available - available / k_spare_part, k_unlimited);
        }
        if (machine_.is_unified()) {
            const uint64_t total = total_memory_bytes();
            uint64_t& memory = machine_.devices.front().memory_bytes;
            memory = std::min({memory, machine_.host.memory_bytes, total - unified_reserve_of(total)});
            machine_.host.memory_bytes = memory;
        }
    }

    Placement place(const Logger* log) {
        const bool takes_all_room = request_.cache_bytes == k_cache_all_room;
        const bool is_context_open = takes_all_room && request_.n_context == 0;
        const bool chooses_context = is_context_open && !request_.for_engine;
        longest_context_ = choose_kv(request_, machine_, bytes(), rules_);
        Plan plan = chooses_context ? choose_context() : planned();
        check(plan);
        // Measured speeds decide which device takes what, how large a cache is, and which experts are copied. One device with room
        // for all need not be measured.
        const bool speeds_matter = caches(plan) || (takes_all_room && machine_.devices.size() > 1);
        if (speeds_matter && machine_.measure && machine_.measure(machine_, weights_) && takes_all_room) {
            even_out(machine_.devices);
            plan = planned();
            check(plan);
        }
        if (is_context_open && log != nullptr && !is_whole(plan))
            log->info("experts: the devices have no room for all of them beside a context of {} tokens",
                      request_.n_context);
        return {with_stream_rules(plan), caches(plan) ? plan.n_ubatch : 0};
    }

  private:
    ModelBytes bytes() const { return model_bytes(config_, weights_, machine_.host); }

    Plan planned() const { return Planner(request_, machine_, bytes(), rules_).place_with_best_rows(); }

    void check(const Plan& plan) const {
        check_rules(rules_, machine_, plan.layer_place);
        if (const auto lacking = shortage(plan)) fail_no_room(*lacking, longest_context_);
    }

    // Returns what the first device that is too small lacks for its layers, without the experts that may be offloaded.
    std::optional<Shortage> shortage(const Plan& plan) const {
        if (!request_.needs_room()) return {};
        Plan without = plan;
        for (int64_t l = 0; l < config_.n_layer; ++l)
            if (!rules_.experts[l] && machine_.has_own_memory(plan.layer_place[l]) && !machine_.is_unified())
                without.expert_place[l] = machine_.host_place();
        const Placement placement(stages_of(without, machine_));
        const int64_t n_context = request_.n_context;
        auto work = runtime::step_bytes(placement.stages(), model::shape_of(config_),
                                        std::min(runtime::k_default_step_rows, n_context), n_context);
        for (size_t s = 0; s < placement.stages().size(); ++s) {
            const Shard& shard = placement.shards()[s];
            const int64_t device = plan.layer_place[shard.first_layer];
            if (!machine_.has_own_memory(device)) continue;
            const uint64_t available = machine_.devices[device].memory_bytes;
            uint64_t needed =
                work[shard.backend.get()] + weights::device_bytes(model::part_of(shard, weights_).weights);
            for (int64_t i = 0; i < shard.n_layer; ++i)
                needed += kv_bytes(config_, request_, shard.first_layer + i,
                                   std::max(n_context, request_.n_kv_tokens));
            if (needed > available) return Shortage{shard, needed, available};
        }
        return {};
    }

    // Returns whether all experts that no rule places are on their layers' devices.
    bool is_whole(const Plan& plan) const {
        for (int64_t l = 0; l < config_.n_layer; ++l)
            if (!rules_.experts[l] && plan.expert_place[l] != plan.layer_place[l]) return false;
        return true;
    }

    bool has_more_kv_than_cache(const Plan& plan) const {
        uint64_t cache = 0;
        uint64_t kv = 0;
        for (int64_t d = 0; d < machine_.host_place(); ++d) {
            if (!machine_.has_own_memory(d)) continue;
            cache += plan.places[d].cache_bytes;
            kv += plan.places[d].kv_bytes;
        }
        return kv > cache;
    }

    // Chooses the context to leave room for, as Request::n_context says. Returns the plan.
    Plan choose_context() {
        const int64_t longest = config_.n_context_train;
        const int64_t wanted = longest > 0 ? std::min(k_any_context, longest) : k_any_context;
        const int64_t least = std::min(k_min_context, wanted);
        const auto plan_for = [this](int64_t n_context) {
            request_.n_context = n_context;
            return planned();
        };
        int64_t context = wanted;
        Plan plan = plan_for(context);
        bool is_short = shortage(plan).has_value();
        while (is_short && context > least) {
            context = std::max(context / 2, least);
            plan = plan_for(context);
            is_short = shortage(plan).has_value();
        }
        if (is_short || is_whole(plan)) return plan;
        for (int64_t shorter = context / 2; shorter >= std::min(k_min_whole_context, wanted); shorter /= 2) {
            Plan other = plan_for(shorter);
            if (is_whole(other)) return other;
        }
        while (has_more_kv_than_cache(plan) && context / 2 >= least) {
            context /= 2;
            plan = plan_for(context);
        }
        request_.n_context = context;
        return plan;
    }

    // Returns the stages of a plan. Steps copy experts to the devices that have a cache if the speeds say so.
    std::vector<Stage> with_stream_rules(const Plan& plan) const {
        uint64_t bytes = 0;
        for (const weights::WeightSpec& weight : weights_)
            if (weight.is_expert()) bytes += weight.bytes();
        const double expert_bytes =
            static_cast<double>(bytes) / static_cast<double>(config_.n_expert_layer() * config_.n_expert);
        std::vector<Stage> stages = stages_of(plan, machine_);
        int64_t layer = 0;
        for (Stage& stage : stages) {
            const int64_t device = plan.layer_place[std::exchange(layer, layer + stage.n_layer)];
            if (stage.cache_bytes > 0)
                stage.stream =
                    stream_rule(machine_.devices[device], machine_.host, config_, expert_bytes, k_max_rows);
        }
        return stages;
    }

    Machine machine_;
    Request request_;
    const model::Config& config_;
    const std::span<const weights::WeightSpec> weights_;
    const Rules rules_;
    int64_t longest_context_ = 0;  // that fits an engine, if that of the request does not; 0: not known
};

}  // namespace

std::vector<Stage> stages_of(const Plan& plan, const Machine& machine) {
    std::vector<Stage> stages;
    for (size_t l = 0; l < plan.layer_place.size(); ++l) {
        const int64_t own = plan.layer_place[l];
        if (l == 0 || own != plan.layer_place[l - 1])
            stages.push_back({.backend = machine.backends[own], .cache_bytes = plan.places[own].cache_bytes});
        const bool stays = plan.expert_place[l] == machine.host_place() && machine.is_host(own);
        stages.back().experts.push_back(machine.backends[stays ? own : plan.expert_place[l]]);
        ++stages.back().n_layer;
    }
    return stages;
}

model::Model::Place place_on(Machine machine, Request request, const Logger* log) {
    if (!request.shares.empty() && request.shares.size() != machine.devices.size())
        fail(Status::invalid, "{} shares of the layers for {} devices", request.shares.size(),
             machine.devices.size());
    if (request.n_device_layers < -1)
        fail(Status::invalid, "{} layers on the devices are not possible", request.n_device_layers);
    if (request.n_context < 0)
        fail(Status::invalid, "a context of {} tokens is not possible", request.n_context);
    if (request.n_context > INT32_MAX)
        fail(Status::invalid, "room for a context of {} tokens is not possible", request.n_context);
    return [machine = std::move(machine), request = std::move(request), log](
               const model::Config& config, std::span<const weights::WeightSpec> weights) {
        return Opening(machine, request, config, weights).place(log);
    };
}

}  // namespace minim::placement
