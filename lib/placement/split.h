// SPDX-License-Identifier: Apache-2.0
// Spreads a model that is opened over devices: makes a plan from the memory that they have, and stages from the plan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/log.h"
#include "model/model.h"
#include "placement/expert_rules.h"
#include "placement/facts.h"

namespace minim::placement {

// The cache size that stands for all the room beside the context.
inline constexpr uint64_t k_cache_all_room = UINT64_MAX;

struct Spread {
    std::vector<std::shared_ptr<const backend::Backend>> devices = {};
    // Shares of the layers, one for each device; empty: layers are split by their bytes, embedding and head included,
    // in proportion to the memory that may be allocated.
    std::vector<double> shares = {};
    // The number of layers on the devices: the last layers of the model. The others stay on `host`. -1: all.
    int64_t n_device_layers = -1;
    std::shared_ptr<const backend::Backend> host = nullptr;
    ExpertRules experts = {};  // with their own `host`
    // The context that must fit on the devices, in tokens, with a KV cache of these formats, beside the work space of steps and
    // a hundredth of the memory. Experts that no rule places and that have no room beside it go to the host:
    //
    //   without a cache   those of the first layers; those of the last layers stay
    //   with a cache      all those of the device, and the room becomes a cache of them
    //
    // If the host has no room for all experts of a device, it gets only those that do not fit, and there is no cache.
    //
    // 0: none, and nothing is checked; but with a cache of all room, a context is chosen: 8,192 tokens, or the model's maximum if
    // that is less. A shorter one, down to 2,048, if then all experts fit beside it; down to 256 if there is no room for more, or
    // if the cache would get less room than the context.
    int64_t fit_context = 0;
    // The rows of a prompt step whose work space must fit too. 0: k_default_step_rows or, with a cache of all room, what a plan finds
    // best.
    int64_t fit_rows = 0;
    // Above 0: the KV cache that must fit is that of an engine of so many requests, and a plan chooses its size (kv/engine_sizes.h); with
    // fit_context 0 it also chooses the context.
    int64_t fit_requests = 0;
    Format k_format = backend::k_default_kv_format;
    Format v_format = backend::k_default_kv_format;
    // Bytes on the devices for a cache of experts. k_cache_all_room: what the context leaves free, if not all experts fit beside
    // it; then `rates` count. 0: no cache. Without fit_context, a size is not checked against the context, and all experts that no
    // rule places go to the host.
    uint64_t expert_cache_bytes = 0;
    // Returns the speeds of the host and the devices, in the order of `devices`. By them, a cache of all room gets no more experts
    // than pay, prompt steps get their rows, and steps copy missing experts to a device with a cache (predict.h). If there is no
    // function, or it returns nothing, the speeds are unknown, and steps never copy experts.
    std::function<std::optional<MachineRates>(
        std::span<const std::shared_ptr<const backend::Backend>> devices)>
        rates = {};
};

// Spreads the layers as a plan (plan.h) for the memory of these devices does. Throws invalid for impossible numbers, and
// out_of_device_memory if a device has no room for the weights that are not experts. Writes a chosen context to `log`, which must
// outlive the result.
model::Model::Place split_over(Spread spread, const Logger* log = nullptr);

}  // namespace minim::placement
