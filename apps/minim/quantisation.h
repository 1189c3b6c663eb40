// SPDX-License-Identifier: Apache-2.0
// Describes the quantisation in config.json of a safetensors folder, for people to read.
#pragma once

#include <string>

namespace cli {

// Returns lines that end in a newline; empty if the path is not a folder, or the folder is not quantised.
std::string quantisation_text(const std::string& path);

}  // namespace cli
