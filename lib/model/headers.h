// What a checkpoint says of the model before its weights are read.
#pragma once

#include <string>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "model/config.h"

namespace minim::model {

// Returns the text of a file that a safetensors folder keeps beside the weights; empty if it is absent and not required.
std::string side_file(const checkpoint::Checkpoint& checkpoint, const char* name, bool required);

// Reads the configuration: GGUF metadata, or config.json. Throws what reading it throws.
Config read_config(const checkpoint::Checkpoint& checkpoint, const Logger& log);

}  // namespace minim::model
