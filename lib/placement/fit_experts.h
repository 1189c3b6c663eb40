// Finds, before anything is loaded, which experts a device has no room for: each device keeps attention and KV cache of all
// its layers, and the experts of as many as fit beside them, or a cache of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "format/format.h"
#include "model/config.h"
#include "model/stage.h"
#include "weights/spec.h"

namespace minim::placement {

// Bytes of a cache: as many as there is room for beside the context.
inline constexpr uint64_t k_cache_all_room = UINT64_MAX;

struct FitRequest {
    const model::Config& config;
    std::span<const weights::WeightSpec> weights;
    const std::vector<bool>& is_said;  // a layer: the place of its experts is not to be changed
    const std::shared_ptr<const backend::Backend>& host;
    int64_t n_context = 0;
    Format k_format = Format::f16;
    Format v_format = Format::f16;
    uint64_t cache_bytes = 0;  // of all devices, or k_cache_all_room; 0: whole layers
};

// Leaves room on each stage's device for the KV cache of n_context positions, the work space of steps of up to 512 rows, and a
// hundredth of what the device could give. Where not all experts have room in what is left:
//
//   without a cache   the experts of the first layers go to `host`, those of the last layers stay
//   with a cache      the experts of all layers go to `host`, and the room becomes a cache of them
//
// A host whose memory is too small for all experts of a device gets no more than it must: then there is no cache. Throws
// out_of_device_memory where a device has no room for what is not experts.
void fit_experts(const FitRequest& request, std::span<model::Stage> stages);

// The same for a caller who wants no particular context: one of 8,192 tokens, or of the model's longest if that is less. A shorter
// one, down to 2,048, if all experts have room beside it, and down to 256 if there is no room for more, or less for the cache than
// for the context. Returns the context.
int64_t fit_experts_to_any_context(FitRequest request, std::span<model::Stage> stages);

}  // namespace minim::placement
