// SPDX-License-Identifier: Apache-2.0
#include "placement/rank_plan.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/kv_view.h"
#include "base/error.h"
#include "base/format_text.h"
#include "kv/page_pool.h"
#include "model/shares.h"
#include "placement/bytes.h"
#include "placement/planner.h"
#include "placement/predict.h"
#include "placement/sizes_text.h"
#include "runtime/step_space.h"

namespace minim::placement {
namespace {

using weights::WeightSpec;

std::string text_of(const ParallelPlan& plan) {
    const int64_t experts = plan.tensor == 1 ? plan.expert_groups : 1;
    return placement::text_of({.tensor = plan.tensor, .experts = experts, .pipeline = plan.pipeline});
}

// Refuses what the ranks of a plan cannot do.
void check_request(const Request& request, const Machine& machine, const ParallelPlan& plan) {
    const std::string text = text_of(plan);
    std::vector<RankDevice> ranks;
    for (const DeviceFacts& device : machine.devices)
        ranks.push_back({device.name, device.compute_capability > 0
                                          ? format_text("sm_{}", device.compute_capability)
                                          : ""});
    check_beside_ranks(request, ranks, text);
    const int64_t n_devices = std::ssize(ranks);
    if (n_devices != 0 && n_devices != plan.n_ranks())
        fail(Status::invalid, "{} means {} ranks, one on each device; {} {} named", text, plan.n_ranks(),
             n_devices, n_devices == 1 ? "device is" : "devices are");
}

// Returns the configuration of what one rank computes, which only its buffers and its speed depend on.
model::Config config_of_rank(const model::Config& config, const ParallelPlan& plan) {
    model::Config rank = model::config_of(shard_of(plan, 0, config.n_layer).share, config);
    rank.n_vocab = config.n_vocab;  // rank 0 has the logits of all
    return rank;
}

class RankPlanner {
  public:
    RankPlanner(const Machine& machine, const model::Config& config, std::span<const WeightSpec> weights,
                const ParallelPlan& parallel)
        : machine_(machine), config_(config_of_rank(config, parallel)), parallel_(parallel) {
        std::vector<WeightSpec> parts;
        for (int64_t rank = 0; rank < parallel.n_ranks(); ++rank) {
            parts.clear();
            for (const WeightSpec& weight : weights)
                if (auto part = model::part_of(shard_of(parallel, rank, config.n_layer), weight, config))
                    parts.push_back(std::move(*part));
            ranks_.push_back(model_bytes(config_, parts, machine.host));
        }
    }
    RankPlanner(const RankPlanner&) = delete;  // `ranks_` refer to `config_`
    RankPlanner& operator=(const RankPlanner&) = delete;

    const Machine& machine() const noexcept { return machine_; }
    const ParallelPlan& parallel() const noexcept { return parallel_; }
    const model::Config& config() const noexcept { return config_; }
    uint64_t memory_of(int64_t rank) const {
        return on_host() ? machine_.host.memory_bytes : machine_.devices[rank].memory_bytes;
    }

    Plan plan(const Request& request) const;

  private:
    bool on_host() const noexcept { return machine_.devices.empty(); }
    PlannedPlace place_of(const Request& request, int64_t rank, int64_t n_kv_tokens) const;

    const Machine& machine_;
    const model::Config config_;
    const ParallelPlan parallel_;
    std::vector<ModelBytes> ranks_;
};

PlannedPlace RankPlanner::place_of(const Request& request, int64_t rank, int64_t n_kv_tokens) const {
    const ModelBytes& bytes = ranks_[rank];
    PlannedPlace place = {.name = on_host() ? "cpu" : machine_.devices[rank].name};
    const runtime::Shard shard = shard_of(parallel_, rank, config_.n_layer);
    place.n_layers = shard.n_layer;
    place.is_measured = on_host() ? machine_.host.is_measured : machine_.devices[rank].has_measured_kernels;
    place.dense_bytes = bytes.embedding + bytes.head;
    for (const LayerBytes& layer : bytes.layers) {
        place.dense_bytes += layer.dense;
        place.expert_bytes += layer.experts;
        place.n_experts += layer.n_experts;
    }
    for (int64_t i = 0; i < shard.n_layer; ++i)
        place.kv_bytes += kv_bytes(config_, request, shard.first_layer + i, n_kv_tokens);
    const int64_t n_rows =
        std::min(request.n_rows > 0 ? request.n_rows : runtime::k_default_step_rows, request.n_context);
    place.work_bytes = work_bytes(bytes, machine_, on_host() ? machine_.host_place() : rank, false, n_rows,
                                  request.n_context);
    const uint64_t taken = used(place) + place.work_bytes + reserve_of(memory_of(rank));
    place.free_bytes = memory_of(rank) > taken ? memory_of(rank) - taken : 0;
    return place;
}

Plan RankPlanner::plan(const Request& request) const {
    Plan plan;
    plan.parallel = parallel_;
    const int64_t n_pages = request.n_kv_tokens > 0 ? kv::page_count(request.n_kv_tokens)
                                                    : kv::page_count(request.n_context) * request.n_sequences;
    plan.n_kv_tokens = n_pages * backend::k_kv_page_tokens;
    plan.n_context = request.n_context;
    plan.n_sequences = request.n_sequences;
    plan.n_ubatch = request.n_rows > 0 ? request.n_rows : runtime::k_default_step_rows;
    plan.fits = true;
    const std::vector<uint64_t> kv_reads = kv_read_bytes(config_, request, request.n_context);
    for (int64_t rank = 0; rank < parallel_.n_ranks(); ++rank) {
        const PlannedPlace place = place_of(request, rank, plan.n_kv_tokens);
        plan.fits &= used(place) + place.work_bytes + reserve_of(memory_of(rank)) <= memory_of(rank);
        plan.token_dense_bytes += place.dense_bytes - ranks_[rank].embedding;
        const runtime::Shard shard = shard_of(parallel_, rank, config_.n_layer);
        for (int64_t i = 0; i < shard.n_layer; ++i) plan.token_kv_bytes += kv_reads[shard.first_layer + i];
        plan.places.push_back(place);
    }
    for (int64_t rank = 0; rank < parallel_.n_ranks(); rank += parallel_.expert_groups)
        for (const LayerBytes& layer : ranks_[rank].layers)
            plan.token_expert_bytes += layer.one_expert() * static_cast<uint64_t>(config_.n_expert_used);
    PlannedPlace host = {.name = "cpu",
                         .free_bytes = machine_.host.memory_bytes - reserve_of(machine_.host.memory_bytes)};
    host.is_measured = machine_.host.is_measured;
    if (on_host()) host.free_bytes = plan.places.front().free_bytes;
    plan.places.push_back(host);
    const bool is_known = (on_host() ? machine_.host.bytes_per_second > 0.0
                                     : std::ranges::all_of(machine_.devices, [](const DeviceFacts& d) {
                                           return d.bytes_per_second > 0.0;
                                       }));
    if (is_known) predict_ranks(machine_, ranks_, kv_reads, request.link, plan);
    return plan;
}

std::string text_of_rank(const RankPlanner& planner, const Plan& plan, int64_t rank) {
    const PlannedPlace& place = plan.places[rank];
    const ParallelPlan& parallel = plan.parallel;
    const std::string part =
        parallel.expert_parts == 1 ? "" : format_text("1/{} of each of ", parallel.expert_parts);
    const int64_t n_heads = planner.config().n_head_kv;
    return format_text("rank {} on {}: {} KV {} of {} layers, {}{} experts; {} of {} used, {} free; speed {}",
                       rank, place.name, n_heads, n_heads == 1 ? "head" : "heads", place.n_layers, part,
                       place.n_experts, size_text(used(place) + place.work_bytes),
                       size_text(planner.memory_of(rank)), size_text(place.free_bytes), speed_text(place));
}

void explain_refusal(const RankPlanner& planner, const Request& request, Plan& plan) {
    for (int64_t rank = 0; rank < plan.parallel.n_ranks(); ++rank) {
        const PlannedPlace& place = plan.places[rank];
        const uint64_t wanted = used(place) + place.work_bytes + reserve_of(planner.memory_of(rank));
        if (wanted > planner.memory_of(rank))
            plan.choices.push_back(
                format_text("rank {} on {}: does not fit: {} wanted with work space and reserve, {} there",
                            rank, place.name, size_text(wanted), size_text(planner.memory_of(rank))));
    }
    const auto fits_with = [&](int64_t n_context, Format k, Format v) {
        Request other = request;
        if (other.n_kv_tokens > 0) other.n_kv_tokens = n_context;
        other.n_context = n_context;
        other.k_format = k;
        other.v_format = v;
        return planner.plan(other).fits;
    };
    const int64_t context = largest_context(request.n_context, [&](int64_t n_context) {
        return fits_with(n_context, request.k_format, request.v_format);
    });
    if (context > 0) plan.choices.push_back(format_text("a context of {} tokens would fit", context));
    const bool is_q8_0 = request.k_format == Format::q8_0 && request.v_format == Format::q8_0;
    if (!is_q8_0 && fits_with(request.n_context, Format::q8_0, Format::q8_0))
        plan.choices.push_back(format_text("a KV cache of Q8_0 would fit {} tokens", request.n_context));
}

}  // namespace

void check_beside_ranks(const Request& request, std::span<const RankDevice> ranks, std::string_view text) {
    const auto refuse = [&](std::string_view what, std::string_view why) {
        fail(Status::invalid, "{} is not possible with {}: {}", what, text, why);
    };
    for (const double share : request.shares)
        if (share != request.shares.front())
            refuse(format_text("a share of {} of the layers beside {}", share, request.shares.front()),
                   "its ranks have even parts of each layer");
    if (request.n_device_layers >= 0)
        refuse("a number of layers on the devices", "its ranks have all layers");
    if (request.n_host_experts != 0) refuse("keeping experts on the host", "its ranks have all experts");
    if (request.overrides)
        refuse(format_text("the rule '{}'", *request.overrides), "its ranks have all experts");
    if (request.caches_host_experts && request.cache_bytes != k_cache_all_room)
        refuse("a cache of experts", "its ranks have all experts");
    const auto kind_of = [](std::string_view device) { return device.substr(0, device.find(':')); };
    for (const RankDevice& rank : ranks) {
        const RankDevice& first = ranks.front();
        if (kind_of(rank.name) != kind_of(first.name))
            refuse(format_text("{} beside {}", rank.name, first.name), "its ranks are devices of one kind");
        const bool is_known = !rank.generation.empty() && !first.generation.empty();
        if (is_known && rank.generation != first.generation)
            refuse(format_text("{} ({}) beside {} ({})", rank.name, rank.generation, first.name,
                               first.generation),
                   "its ranks must choose the same experts, and the last bits differ");
    }
}

Plan plan_ranks(Request request, const Machine& machine, const model::Config& config,
                std::span<const WeightSpec> weights) {
    const ParallelPlan parallel = plan_parallel(request.parallel, config, weights);
    check_request(request, machine, parallel);
    const RankPlanner planner(machine, config, weights, parallel);
    choose_kv(request, config.n_context_train, [&](const Request& other) {
        return planner.plan(other).fits ? kv::Fit::nothing : kv::Fit::no;
    });
    Plan plan = planner.plan(request);
    plan.choices.push_back(format_text(
        "{} ranks: {}; experts in {} {}, each expert {}", parallel.n_ranks(), text_of(parallel),
        parallel.expert_groups, parallel.expert_groups == 1 ? "group" : "groups",
        parallel.expert_parts == 1 ? "whole" : format_text("in {} parts", parallel.expert_parts)));
    for (int64_t rank = 0; rank < parallel.n_ranks(); ++rank)
        plan.choices.push_back(text_of_rank(planner, plan, rank));
    if (!plan.fits) explain_refusal(planner, request, plan);
    return plan;
}

}  // namespace minim::placement
