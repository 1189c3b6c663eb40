// SPDX-License-Identifier: Apache-2.0
// The size of weights in a device's own memory.
#pragma once

#include <cstdint>
#include <span>

#include "weights/spec.h"

namespace minim::weights {

// Returns the bytes of the block that the weights take. Uses only their shapes and formats.
uint64_t device_bytes(std::span<const WeightSpec* const> weights);

}  // namespace minim::weights
