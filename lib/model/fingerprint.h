// Tells one model from another, so that a saved session is not continued by a model it did not come from.
#pragma once

#include <cstdint>

#include "checkpoint/checkpoint.h"
#include "model/config.h"

namespace minim::model {

// Of the configuration, of every tensor's name, type and shape, and of some bytes of about 256 tensors: as
// many as can be read of a model of any size when it is opened. The same for a file and its split parts. The
// tensors are loaded and not yet packed.
uint64_t fingerprint(const checkpoint::Checkpoint& checkpoint, const Config& config);

}  // namespace minim::model
