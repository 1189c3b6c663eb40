// SPDX-License-Identifier: Apache-2.0
// Layers of multi-token prediction follow those of the model. They may be counted among the model's or not, announced or not, and
// in the files or not: the tensors decide.
#pragma once

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "model/config.h"

namespace minim::model {

// Returns the configuration with n_layer as the number of the model's own layers, and n_mtp_layer as that of the layers behind
// them that are skipped. Says in the log if the tensors show another number than the configuration.
Config with_mtp_layers(const checkpoint::Checkpoint& checkpoint, Config config, const Logger& log);

}  // namespace minim::model
