// SPDX-License-Identifier: Apache-2.0
// Finds the models that the options name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.h"

namespace server {

struct ModelFile {
    std::string path;
    std::vector<std::string> names;  // empty, of the only model: the file has its name
};

// Returns the models of -m, then those of --models-dir. Throws std::runtime_error if one does not exist, two have the same name, or
// the folder has none.
std::vector<ModelFile> list_models(const Options& options);

// Returns the bytes of a model's files: of all parts of a GGUF file, or of the weights in a folder.
uint64_t file_bytes(const std::string& path);

}  // namespace server
