// SPDX-License-Identifier: Apache-2.0
// Reads what a checkpoint says about the model, without its weights.
#pragma once

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "model/config.h"

namespace minim::model {

// Reads the configuration: GGUF metadata, or config.json. Throws what reading it throws.
Config read_config(const checkpoint::Checkpoint& checkpoint, const Logger& log);

}  // namespace minim::model
