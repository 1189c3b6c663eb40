// SPDX-License-Identifier: Apache-2.0
// Plans the placement of weights, the memory that each device needs, and the speed, from headers and facts about the
// machine only. Nothing is allocated, and devices need not be open, so that machines can be planned that do not exist. A model is opened
// by a plan for its open devices (place.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "placement/facts.h"
#include "placement/parallel.h"
#include "placement/request.h"
#include "weights/spec.h"

namespace minim::placement {

// The contents of one memory.
struct PlannedPlace {
    std::string name;
    uint64_t dense_bytes = 0;  // weights that are not experts
    uint64_t expert_bytes = 0;
    uint64_t kv_bytes = 0;
    uint64_t work_bytes = 0;  // buffers of a step, staging, and memory of the driver
    uint64_t free_bytes = 0;  // the rest, less a reserve
    // Of a device: the memory for a cache, with the areas for experts that steps copy. It is part of other numbers above.
    uint64_t cache_bytes = 0;
    int64_t n_layers = 0;  // layers whose attention and KV cache are here
    int64_t n_experts = 0;
    bool is_measured = false;  // its speed, of the kernels with the model's formats; false: it is estimated
};

// The parts of the time of one token, in seconds. They run one after the other unless they overlap.
struct DecodeSeconds {
    double dense = 0.0;     // weights of attention, routers and head
    double kv_cache = 0.0;  // the whole context, read once
    double device_experts = 0.0;
    double host_experts = 0.0;
    double launches = 0.0;   // of kernels, and jobs of the host's threads
    double hand_over = 0.0;  // between devices, and to the host and back
    double sums = 0.0;       // of the ranks that share layers
    double overlap = 0.0;  // time in which a device and the host compute experts of a layer at the same time

    double total() const noexcept {
        return dense + kv_cache + device_experts + host_experts + launches + hand_over + sums - overlap;
    }
};

struct Plan {
    bool fits = false;
    ParallelPlan parallel = {};
    // By place (Machine): the devices in the order of the request, including those that get nothing, then the host. With several ranks:
    // the ranks in their order, then the host.
    std::vector<PlannedPlace> places;
    bool is_unified = false;  // the device shares the host's memory: both have the same free_bytes
    // Of one rank only:
    std::vector<int64_t> layer_place;   // by layer
    std::vector<int64_t> expert_place;  // of the experts of each layer
    // By layer: the part of its experts that fits into the cache of its device. The host has all experts, and computes the
    // others.
    std::vector<double> cached_part;
    int64_t n_ubatch = 0;  // rows of a prompt step
    // As in the request, or chosen.
    int64_t n_context = 0;
    int64_t n_kv_tokens = 0;  // of all sequences together
    int64_t n_sequences = 0;

    // The bytes that are read to decode one token.
    uint64_t token_dense_bytes = 0;
    uint64_t token_expert_bytes = 0;
    uint64_t token_kv_bytes = 0;

    double decode_tokens_per_second = 0.0;  // of one sequence whose context is full, with even routing
    double prompt_tokens_per_second = 0.0;  // of a prompt as long as the context
    DecodeSeconds decode_seconds;
    std::vector<std::string> choices;  // what was placed where and why; what would fit, if it does not

    std::span<const PlannedPlace> devices() const noexcept {
        return std::span(places).first(places.size() - 1);
    }
    const PlannedPlace& host() const noexcept { return places.back(); }
    uint64_t used_bytes() const noexcept {  // of all places together, work space included
        uint64_t bytes = 0;
        for (const PlannedPlace& place : places)
            bytes += place.dense_bytes + place.expert_bytes + place.kv_bytes + place.work_bytes;
        return bytes;
    }
};

// Makes a plan, with sentences. Throws invalid for impossible numbers, formats that a KV cache cannot have, rules that match nothing
// or name an unknown device, and unsupported for rules that would split a layer's experts.
Plan make_plan(Request request, Machine machine, const model::Config& config,
               std::span<const weights::WeightSpec> weights);

// Returns "measured" or "estimated".
inline std::string_view speed_text(const PlannedPlace& place) {
    return place.is_measured ? "measured" : "estimated";
}

// Returns the plan as JSON, as documented in minim.h.
std::string to_json(const Plan& plan);

}  // namespace minim::placement
