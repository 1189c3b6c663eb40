// SPDX-License-Identifier: Apache-2.0
#include "placement/parallel.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/format_text.h"
#include "model/roles.h"

namespace minim::placement {
namespace {

using model::Role;
using weights::WeightSpec;

// Kernels read columns in runs of this many.
constexpr int64_t k_column_run = 32;

std::string count_text(int64_t n, std::string_view noun) {
    return format_text("{} {}{}", n, noun, n == 1 ? "" : noun.ends_with("s") ? "es" : "s");
}

// Returns "1, 2 and 4": the numbers that divide n.
std::string divisors_text(int64_t n) {
    std::string text;
    for (int64_t d = 1; d <= n; ++d) {
        if (n % d != 0) continue;
        if (!text.empty()) text += d == n ? " and " : ", ";
        text += std::to_string(d);
    }
    return text;
}

bool asks(int64_t n_ranks) noexcept {
    return n_ranks != 0 && n_ranks != 1;
}

void check_numbers(const ParallelRequest& request) {
    const auto check = [](int64_t n, std::string_view what) {
        if (n < 0) fail(Status::invalid, "{} {} is not a number of ranks", what, n);
    };
    check(request.tensor, "tensor parallel");
    if (request.experts != k_all_ranks) check(request.experts, "expert parallel");
    check(request.pipeline, "pipeline parallel");
}

// Refuses heads and rows of the vocabulary that the ranks cannot share.
void check_heads(int64_t tensor, const model::Config& config, std::span<const WeightSpec> weights) {
    if (config.n_head_kv % tensor != 0)
        fail(Status::invalid, "{} cannot be divided among {} ranks; {} ranks can share them",
             count_text(config.n_head_kv, "KV head"), tensor, divisors_text(config.n_head_kv));
    for (const WeightSpec& weight : weights) {
        const auto role = static_cast<Role>(weight.role);
        if (role == Role::output && weight.rows % tensor != 0)
            fail(Status::invalid, "the {} rows of the output head cannot be divided among {} ranks",
                 weight.rows, tensor);
        const int64_t block = traits(weight.format).block_elems;
        if (role == Role::wo && weight.cols % (tensor * block) != 0)
            fail(Status::invalid,
                 "attn_output of layer {} is {}, in blocks of {} columns: {} ranks cannot share its {}",
                 weight.layer, traits(weight.format).name, block, tensor, weight.cols);
    }
}

// Returns a matrix of a role, `down` or `dense_down`, that cannot be divided into n_parts parts; null: all can be.
const WeightSpec* indivisible(Role role, int64_t n_parts, std::span<const WeightSpec> weights) {
    if (n_parts == 1) return nullptr;
    const auto found = std::ranges::find_if(weights, [role, n_parts](const WeightSpec& weight) {
        if (static_cast<Role>(weight.role) != role) return false;
        const int64_t unit =
            std::max<int64_t>(k_column_run, traits(weight.format).block_elems);  // powers of 2
        return weight.cols % (n_parts * unit) != 0;
    });
    return found == weights.end() ? nullptr : &*found;
}

}  // namespace

bool asks_for_ranks(const ParallelRequest& request) noexcept {
    return asks(request.tensor) || asks(request.experts) || asks(request.pipeline);
}

std::string text_of(const ParallelRequest& request) {
    std::string text;
    const auto add = [&](int64_t n, std::string_view what) {
        if (!asks(n)) return;
        text += format_text("{}{} parallel", text.empty() ? "" : ", ", what);
        if (n > 0) text += format_text(" {}", n);
    };
    add(request.tensor, "tensor");
    if (!asks(request.tensor)) add(request.experts, "expert");
    add(request.pipeline, "pipeline");
    return text;
}

ParallelRequest with_devices(ParallelRequest request, int64_t n_devices) noexcept {
    const int64_t n_stages = std::max<int64_t>(request.pipeline, 1);
    if (request.tensor == k_all_ranks) request.tensor = std::max<int64_t>(n_devices / n_stages, 1);
    return request;
}

ParallelPlan plan_parallel(const ParallelRequest& request, const model::Config& config,
                           std::span<const WeightSpec> weights) {
    check_numbers(request);
    ParallelPlan plan;
    plan.tensor = std::max<int64_t>(request.tensor, 1);
    plan.pipeline = std::max<int64_t>(request.pipeline, 1);
    const int64_t n_ranks = plan.tensor > 1 ? plan.tensor : std::max<int64_t>(request.experts, 1);
    const int64_t n_groups = request.experts == k_all_ranks ? n_ranks : request.experts;
    check_heads(plan.tensor, config, weights);
    if (n_groups > 0) {
        if (n_ranks % n_groups != 0)
            fail(Status::invalid, "{} ranks cannot be divided into {} of experts; {} groups are possible",
                 n_ranks, count_text(n_groups, "group"), divisors_text(n_ranks));
        plan.expert_parts = n_ranks / n_groups;
        if (const WeightSpec* const down = indivisible(Role::down, plan.expert_parts, weights))
            fail(Status::invalid,
                 "down of layer {} is {}, in blocks of {} columns: {} ranks cannot share its {}; whole "
                 "experts "
                 "on each rank: --expert-parallel {}",
                 down->layer, traits(down->format).name, traits(down->format).block_elems, plan.expert_parts,
                 down->cols, n_ranks);
    } else {
        plan.expert_parts = n_ranks;
        while (n_ranks % plan.expert_parts != 0 ||
               indivisible(Role::down, plan.expert_parts, weights) != nullptr)
            --plan.expert_parts;
    }
    plan.expert_groups = n_ranks / plan.expert_parts;
    const bool has_dense = std::ranges::any_of(
        weights, [](const WeightSpec& weight) { return static_cast<Role>(weight.role) == Role::dense_down; });
    if (has_dense && indivisible(Role::dense_down, plan.tensor, weights) == nullptr)
        plan.dense_parts = plan.tensor;
    if (plan.expert_groups > config.n_expert)
        fail(Status::invalid, "{} cannot be given to {} ranks", count_text(config.n_expert, "expert"),
             plan.expert_groups);
    if (plan.pipeline > config.n_layer)
        fail(Status::invalid, "{} cannot be given to {} stages of a pipeline",
             count_text(config.n_layer, "layer"), plan.pipeline);
    return plan;
}

runtime::Shard shard_of(const ParallelPlan& plan, int64_t rank, int64_t n_layer) {
    const int64_t stage = plan.pipeline - 1 - rank / plan.ranks_of_stage();
    const auto first_layer = [&](int64_t s) { return s * n_layer / plan.pipeline; };
    runtime::Shard shard;
    shard.share = {.rank = static_cast<int32_t>(rank % plan.ranks_of_stage()),
                   .tensor = static_cast<int32_t>(plan.tensor),
                   .expert_groups = static_cast<int32_t>(plan.expert_groups),
                   .expert_parts = static_cast<int32_t>(plan.expert_parts),
                   .dense_parts = static_cast<int32_t>(plan.dense_parts)};
    shard.first_layer = first_layer(stage);
    shard.n_layer = first_layer(stage + 1) - shard.first_layer;
    shard.expert_layers.resize(shard.n_layer);
    std::iota(shard.expert_layers.begin(), shard.expert_layers.end(), shard.first_layer);
    shard.has_embedding = stage == 0;
    shard.has_output = stage + 1 == plan.pipeline && (shard.share.shares_heads() || shard.share.rank == 0);
    return shard;
}

void check_ranks(const ParallelPlan& plan, int64_t n_processes, int64_t n_devices) {
    if (plan.pipeline != 1 && plan.pipeline != n_processes)
        fail(Status::invalid, "a pipeline of {} stages needs {} processes, one for each stage; there {} {}{}",
             plan.pipeline, plan.pipeline, n_processes == 1 ? "is" : "are", n_processes,
             n_processes == 1 && n_devices > 1
                 ? "; the devices of one process have layers each without a pipeline"
                 : "");
    const int64_t n_ranks = n_processes * n_devices;
    if (n_ranks == plan.n_ranks()) return;
    std::string remedy;
    if (n_processes == 1)
        remedy = format_text(": start {} processes with mpirun -n {}, or name {} devices", plan.n_ranks(),
                             plan.n_ranks(), plan.n_ranks());
    fail(Status::invalid, "{} with {}{} {} {}, not {}{}", count_text(n_processes, "process"),
         count_text(n_devices, "device"), n_processes == 1 ? "" : " each", n_processes == 1 ? "is" : "are",
         count_text(n_ranks, "rank"), plan.n_ranks(), remedy);
}

}  // namespace minim::placement
