// SPDX-License-Identifier: Apache-2.0
// The metadata of a GGUF file for the model of a safetensors folder: keys and order of llama.cpp's converter.
#pragma once

#include <cstdint>
#include <string>

#include "base/log.h"
#include "checkpoint/gguf_writer.h"
#include "convert/source.h"

namespace minim::convert {

// `name`: general.name. Reads the folder's configuration, tokenizer and chat template. Throws what reading them throws: a tokenizer
// that splits text in another way than the model family's is unsupported, with its pattern.
checkpoint::MetaEntries model_metadata(const Source& source, const std::string& name, uint32_t file_type,
                                       const Logger& log);

}  // namespace minim::convert
