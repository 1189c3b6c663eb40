// Where a model is: a path, or ORG/NAME[:QUANT] in the cache of Hugging Face's tools. Nothing is downloaded.
#pragma once

#include <string>

namespace server {

// Throws std::runtime_error that names what was looked for, and the command that downloads it.
std::string find_model(const std::string& name);

}  // namespace server
