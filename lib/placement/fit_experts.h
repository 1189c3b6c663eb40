// SPDX-License-Identifier: Apache-2.0
// Moves experts that do not fit on their device to the host, before anything is loaded: each device keeps attention
// and KV cache of all its layers, and the experts of as many layers as fit, or a cache of experts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "format/format.h"
#include "model/config.h"
#include "runtime/stage.h"
#include "weights/spec.h"

namespace minim::placement {

// The cache size that stands for all the room beside the context.
inline constexpr uint64_t k_cache_all_room = UINT64_MAX;

struct FitRequest {
    const model::Config& config;
    std::span<const weights::WeightSpec> weights;
    const std::vector<bool>& is_pinned;  // by layer: an explicit rule places its experts; do not move them
    const std::shared_ptr<const backend::Backend>& host;
    int64_t n_context = 0;
    Format k_format = backend::k_default_kv_format;
    Format v_format = backend::k_default_kv_format;
    uint64_t cache_bytes =
        0;  // of all devices together, or k_cache_all_room; 0: no cache, experts of whole layers
};

// Leaves room on each stage's device for the KV cache of n_context positions, the work space of steps of up to 512
// rows, and a hundredth of the device's available memory. If not all experts fit in the rest:
//
//   without a cache   the experts of the first layers go to `host`, those of the last layers stay
//   with a cache      the experts of all layers go to `host`, and the room becomes a cache of them
//
// If host memory is too small for all experts of a device, the host gets only the experts that do not fit, and there
// is no cache. Throws out_of_device_memory if a device has no room for the weights that are not experts.
void fit_experts(const FitRequest& request, std::span<runtime::Stage> stages);

// Chooses the context as well, and returns it: 8,192 tokens, or the model's maximum if that is less. Chooses a shorter context,
// down to 2,048, if then all experts fit beside it. Goes down to 256 if there is no room for more, or if the cache would get
// less room than the context.
int64_t fit_experts_to_any_context(FitRequest request, std::span<runtime::Stage> stages);

}  // namespace minim::placement
