// SPDX-License-Identifier: Apache-2.0
// Finds a model: a path, or ORG/NAME[:QUANT] in the cache of Hugging Face's tools. Downloads nothing.
#pragma once

#include <string>
#include <vector>

#include "options.h"

namespace program {

// Returns the path of the model. Throws std::runtime_error, with the searched places and the command that downloads the model,
// if it is not found.
std::string find_model(const std::string& name);

// The same, but a name that is neither a path nor ORG/NAME is returned as it is: the library says what is wrong with it.
std::string find_model_or_keep(const std::string& name);

// Returns the name of a GGUF file without ".gguf" and, for the first of several parts, without "-00001-of-00003"; "" for the other parts
// and for other files.
std::string gguf_name(const std::string& file);

// Returns the models of a folder, in the order of their names: its GGUF files, and those of the folders in it; of several parts the
// first; and the folders in it with safetensors files. A folder with one model gives it its name. Throws std::runtime_error if there is
// none.
std::vector<GivenModel> models_in(const std::string& folder);

}  // namespace program
