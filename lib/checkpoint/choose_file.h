// Which file to open where the user names a folder.
#pragma once

#include <string>

namespace minim::checkpoint {

// `path` itself unless it is a folder. Of a folder: model.safetensors.index.json, else model.safetensors,
// else the only GGUF file or the first part of the only split set. Of several GGUF files those that say that they hold no
// model (an importance matrix, a projector, an adapter) are left out. Throws not_found if there is none of them, invalid if
// there are several to choose from; the message lists them.
std::string choose_file(const std::string& path);

}  // namespace minim::checkpoint
