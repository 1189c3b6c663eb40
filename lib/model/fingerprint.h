// SPDX-License-Identifier: Apache-2.0
// Identifies a model, so that a saved session is not continued with another model.
#pragma once

#include <cstdint>

#include "checkpoint/checkpoint.h"
#include "model/config.h"

namespace minim::model {

// Returns a hash of the configuration, of every tensor's name, type and shape, and of some bytes of about 256
// tensors, which are few enough to read when a model of any size is opened. A file and its split parts have the same
// fingerprint. The tensors must be loaded and not yet packed.
uint64_t fingerprint(const checkpoint::Checkpoint& checkpoint, const Config& config);

}  // namespace minim::model
