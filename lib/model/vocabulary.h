// SPDX-License-Identifier: Apache-2.0
// Reads the tokenizer's vocabulary of a checkpoint: from GGUF metadata, or from the JSON files of a safetensors
// folder.
#pragma once

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "tokenizer/vocabulary.h"

namespace minim::model {

// Throws format, naming the metadata key, and unsupported for a tokenizer of another kind.
tokenizer::Vocabulary vocabulary_from_gguf(const checkpoint::Metadata& metadata, const Logger& log);

}  // namespace minim::model
