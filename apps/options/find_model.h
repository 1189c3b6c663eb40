// SPDX-License-Identifier: Apache-2.0
// Finds a model: a path, or ORG/NAME[:QUANT] in the cache of Hugging Face's tools. Downloads nothing.
#pragma once

#include <string>

namespace program {

// Returns the path of the model. Throws std::runtime_error, with the searched places and the command that downloads the model,
// if it is not found.
std::string find_model(const std::string& name);

// The same, but a name that is neither a path nor ORG/NAME is returned as it is: the library says what is wrong with it.
std::string find_model_or_keep(const std::string& name);

}  // namespace program
