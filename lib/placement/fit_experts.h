// Experts that a device has no room for, found before anything is loaded: each device keeps attention, keys and values of
// all its layers, and the experts of as many as fit beside them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "model/stage.h"
#include "weights/spec.h"

namespace minim::placement {

// Room is left for keys and values (F16) of n_context positions, for the work space of steps of up to 512 rows, and for
// a hundredth of what the device could give. The experts of a device's first layers go to `host`, those of its last
// layers stay; `is_said` has the layers whose place is not to be changed. Throws out_of_device_memory where a device has
// no room for what is left then.
void fit_experts(int64_t n_context, const model::Config& config, std::span<const weights::WeightSpec> weights,
                 const std::vector<bool>& is_said, const std::shared_ptr<const backend::Backend>& host,
                 std::span<model::Stage> stages);

}  // namespace minim::placement
