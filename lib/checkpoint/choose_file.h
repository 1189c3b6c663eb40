// SPDX-License-Identifier: Apache-2.0
// Chooses the file to open if the user names a folder.
#pragma once

#include <string>

namespace minim::checkpoint {

// Returns `path` itself unless it is a folder. Of a folder: model.safetensors.index.json, else model.safetensors, else the
// only GGUF file or the first part of the only split set. GGUF files whose metadata name something other than a model (an
// importance matrix, a projector, an adapter) do not count. Throws not_found if there is none, invalid if there are several;
// the message lists them.
std::string choose_file(const std::string& path);

}  // namespace minim::checkpoint
