// SPDX-License-Identifier: Apache-2.0
// How several devices compute the same layers. A stage of a pipeline has max(tensor, expert_groups * expert_parts) ranks, one for
// each of its devices. Rank r has
//
//   attention   all heads (tensor 1), or KV heads [r * n_head_kv / tensor, ...) with their queries
//   experts     the experts e with e % expert_groups == r % expert_groups; of each, part r / expert_groups of expert_parts
//               equal parts of the rows of gate and up and of the columns of down
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "model/config.h"
#include "runtime/placement.h"
#include "weights/spec.h"

namespace minim::placement {

// Stands for a number of ranks: all of the devices, and of experts a group for each rank.
inline constexpr int64_t k_all_ranks = -1;

// What a caller asks for; 0: not said.
struct ParallelRequest {
    int64_t tensor = 0;    // or k_all_ranks
    int64_t experts = 0;   // groups of experts; with tensor 0 or 1, also the number of ranks; or k_all_ranks
    int64_t pipeline = 0;  // stages, each of one process
};

// Returns whether a request asks for several ranks. Without it nobody looks for a launcher.
bool asks_for_ranks(const ParallelRequest& request) noexcept;

// Returns what a request asks for, for messages: "tensor parallel 2, pipeline parallel 2".
std::string text_of(const ParallelRequest& request);

// Returns the request with the number of devices of all processes instead of k_all_ranks for `tensor`.
ParallelRequest with_devices(ParallelRequest request, int64_t n_devices) noexcept;

struct ParallelPlan {
    int64_t tensor = 1;
    int64_t expert_groups = 1;
    int64_t expert_parts = 1;
    int64_t pipeline = 1;
    int64_t dense_parts = 1;  // into which dense feed-forwards and shared experts are divided: `tensor`, or 1

    int64_t ranks_of_stage() const noexcept { return expert_groups * expert_parts; }
    int64_t n_ranks() const noexcept { return pipeline * ranks_of_stage(); }
    bool operator==(const ParallelPlan&) const = default;
};

// Returns the plan of a request. Without `experts`, each expert has as many parts as its formats and the number of ranks allow,
// and the experts are divided into groups for the rest: with few rows a step, parts keep all ranks equally busy. Dense
// feed-forwards and shared experts are divided among ranks that share heads if their formats allow; else each rank has all of them. Throws
// invalid for numbers that do not divide what they must.
ParallelPlan plan_parallel(const ParallelRequest& request, const model::Config& config,
                           std::span<const weights::WeightSpec> weights);

// Returns what a rank has, without its device. Ranks are numbered process by process; the ranks of a pipeline's last stage are those
// of process 0, so that the process with the sessions has the logits.
runtime::Shard shard_of(const ParallelPlan& plan, int64_t rank, int64_t n_layer);

// Throws invalid unless the plan's ranks are those of n_processes processes with n_devices devices each.
void check_ranks(const ParallelPlan& plan, int64_t n_processes, int64_t n_devices);

}  // namespace minim::placement
