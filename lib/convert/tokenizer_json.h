// SPDX-License-Identifier: Apache-2.0
// The tokenizer files of a safetensors folder, made of the vocabulary of a GGUF file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/metadata.h"
#include "tokenizer/vocabulary.h"

namespace minim::convert {

// Returns tokenizer.json: byte-level BPE with the pre-tokenizer of the model family. Rows without text are left out.
std::string tokenizer_json(const tokenizer::Vocabulary& vocabulary);

// Returns tokenizer_config.json: the special tokens, whether texts get a first and a last one, and chat templates by name, if any are
// given.
std::string tokenizer_config_json(const tokenizer::Vocabulary& vocabulary,
                                  const checkpoint::Metadata& metadata,
                                  const std::vector<std::pair<std::string, std::string>>& templates);

}  // namespace minim::convert
