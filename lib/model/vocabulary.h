// SPDX-License-Identifier: Apache-2.0
// Reads the tokenizer's vocabulary of a checkpoint: from GGUF metadata, or from the JSON files of a safetensors
// folder.
#pragma once

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "tokenizer/vocabulary.h"

namespace minim::model {

// Both throw format, naming the metadata key or the file, and unsupported for a tokenizer of another kind.
tokenizer::Vocabulary read_vocabulary(const checkpoint::Checkpoint& checkpoint, const Logger& log);
tokenizer::Vocabulary vocabulary_from_gguf(const checkpoint::Metadata& metadata, const Logger& log);

}  // namespace minim::model
