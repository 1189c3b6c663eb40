// SPDX-License-Identifier: Apache-2.0
// Plans the placement of weights, the memory that each device needs, and the speed, from headers and facts about the
// machine only. No device is opened and nothing is allocated, so that machines can be planned that do not exist. Opening a model
// makes such a plan from the memory of its devices (split.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/kv_view.h"
#include "format/format.h"
#include "model/config.h"
#include "placement/expert_rules.h"
#include "placement/facts.h"
#include "runtime/step_space.h"
#include "weights/spec.h"

namespace minim::placement {

// Experts that no rule places.
enum class FreeExperts {
    stay,          // on their layer's device, whatever its room
    whole_layers,  // those of the last layers that fit; the host has the others
    cached,        // if they do not all fit, the host has all, and the device a cache
};

// Places of a layer's experts that are not the index of a device.
inline constexpr int32_t k_on_host = -1;
inline constexpr int32_t k_free = -2;             // no rule places them
inline constexpr int32_t k_on_other_device = -3;  // on a device without layers, which is not in the plan

struct PlanRequest {
    const model::Config& config;
    std::span<const weights::WeightSpec> weights;
    std::vector<DeviceFacts> devices = {};  // in the order of the layers
    HostFacts host = {};
    int64_t n_context = 0;    // tokens of one sequence
    int64_t n_sequences = 1;  // concurrent sequences; each reserves the context, but for n_kv_tokens
    int64_t n_kv_tokens = 0;  // tokens of a KV cache that the sequences share; 0: each reserves the context
    // The sequences are the requests of an engine: the plan chooses n_kv_tokens, and n_context if it is 0 (kv/engine_sizes.h).
    bool for_engine = false;
    int64_t n_ubatch =
        runtime::k_default_step_rows;  // rows of a prompt step; 0: the plan chooses, at least the default
    Format k_format = backend::k_default_kv_format;
    Format v_format = backend::k_default_kv_format;
    std::string overrides = {};  // parse_overrides(); "cpu" is the host
    int64_t n_host_experts = 0;  // ExpertRules::n_host_layers; for layers that `overrides` do not name
    uint64_t most_cache_bytes = UINT64_MAX;  // of the caches of all devices, in proportion to their layers
    bool caches_host_experts = false;        // experts that rules place on the host may be cached as well
    int64_t n_device_layers = -1;            // layers on devices; -1: all, or as many as have room
    std::vector<double> shares =
        {};  // shares of the layers, one for each device; if they add up to the number of layers, they are counts

    // The rest is for models that are opened (split.h).
    FreeExperts free_experts = FreeExperts::cached;
    std::vector<int32_t> expert_devices = {};  // by layer, instead of `overrides`; empty: none is said
    // Returns the bytes of a device that are neither for weights nor for the KV cache, with steps of n_rows rows and a context of
    // n_context. Empty: they are estimated.
    std::function<uint64_t(size_t device, int64_t n_rows, int64_t n_context)> taken_bytes = {};
};

// The contents of one memory.
struct PlannedPlace {
    std::string name;
    uint64_t dense_bytes = 0;  // weights that are not experts
    uint64_t expert_bytes = 0;
    uint64_t kv_bytes = 0;
    uint64_t work_bytes = 0;  // buffers of a step, staging, and memory of the driver
    uint64_t free_bytes = 0;  // the rest, less a reserve
    // Of a device: the room for a cache, with the areas for experts that steps copy. They are part of other numbers above.
    uint64_t cache_bytes = 0;
    int64_t n_layers = 0;  // layers whose attention and KV cache are here
    int64_t n_experts = 0;
};

// The parts of the time of one token, in seconds. They run one after the other unless they overlap.
struct DecodeSeconds {
    double dense = 0.0;     // weights of attention, routers and head
    double kv_cache = 0.0;  // the whole context, read once
    double device_experts = 0.0;
    double host_experts = 0.0;
    double launches = 0.0;   // of kernels, and jobs of the host's threads
    double hand_over = 0.0;  // between devices, and to the host and back
    double overlap = 0.0;  // time in which a device and the host compute experts of a layer at the same time

    double total() const noexcept {
        return dense + kv_cache + device_experts + host_experts + launches + hand_over - overlap;
    }
};

struct Plan {
    bool fits = false;
    std::vector<PlannedPlace> devices;  // in the order of the request, including devices that get nothing
    PlannedPlace host;
    std::vector<int32_t> layer_device;   // of each layer: index of the device, -1: the host
    std::vector<int32_t> expert_device;  // of the experts of each layer
    // By layer: the part of its experts that fits into the cache of its device. The host has all experts, and computes the
    // others.
    std::vector<double> cached_part;
    int64_t n_ubatch = 0;  // rows of a prompt step
    // As in the request, or chosen.
    int64_t n_context = 0;
    int64_t n_kv_tokens = 0;  // of all sequences together
    int64_t n_sequences = 0;
    int64_t longest_context = 0;  // that fits; only for an engine whose context does not fit

    // The bytes that are read to decode one token.
    uint64_t token_dense_bytes = 0;
    uint64_t token_expert_bytes = 0;
    uint64_t token_kv_bytes = 0;

    double decode_tokens_per_second = 0.0;  // of one sequence whose context is full, with even routing
    double prompt_tokens_per_second = 0.0;  // of a prompt as long as the context
    DecodeSeconds decode_seconds;
    std::vector<std::string> choices;  // what was placed where and why; what would fit, if it does not
};

// Makes a plan. Throws invalid for impossible numbers, formats that a KV cache cannot have, rules that match nothing
// or name an unknown device, and unsupported for rules that would split a layer's experts.
Plan make_plan(const PlanRequest& request);

// Makes the same plan without sentences and without checks of the request. Predicts speeds only if all bandwidths are given;
// without them, devices count as equally fast.
Plan arrange(const PlanRequest& request);

// Returns the plan as JSON, as documented in minim.h.
std::string to_json(const Plan& plan);

}  // namespace minim::placement
