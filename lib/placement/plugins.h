// Backends that are shared libraries, looked for in the folders that the environment variable MINIM_PLUGIN_PATH names (with
// colons between, searched first) and in minim-ABI beside this library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/plugin.h"

namespace minim::placement {

// The plug-in of a kind. Stays loaded as long as the process. Throws not_found naming the folders, or unsupported
// where it cannot be loaded or is of another build.
const backend::Plugin& load_plugin(std::string_view kind);

// Kinds of the plug-ins that lie in the folders, in alphabetical order.
std::vector<std::string> plugin_kinds();

}  // namespace minim::placement
