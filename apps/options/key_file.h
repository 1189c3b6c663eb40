// SPDX-License-Identifier: Apache-2.0
// Files of API keys.
#pragma once

#include <string>
#include <vector>

namespace program {

// Returns the keys of a file with one key on each line; lines that begin with # are comments. Throws std::runtime_error that names the
// file if it cannot be read, has no key, or has a line that is no key.
std::vector<std::string> read_key_file(const std::string& path);

}  // namespace program
