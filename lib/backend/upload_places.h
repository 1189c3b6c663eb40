// SPDX-License-Identifier: Apache-2.0
// The table of a layer's experts in a device's memory.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace minim::backend {

// Copies places_of(weights) to the device and returns that memory, which `weights.places` may point to. The copy is complete
// when the call returns. Throws out_of_device_memory or device_lost.
std::unique_ptr<Memory> upload_places(const Backend& device, const ExpertWeights& weights);

}  // namespace minim::backend
