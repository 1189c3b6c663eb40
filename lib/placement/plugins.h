// SPDX-License-Identifier: Apache-2.0
// Finds backends, and links between processes, that are shared libraries: in the folders of the environment variable
// MINIM_PLUGIN_PATH (separated by colons, searched first), and in minim-ABI beside this library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/plugin.h"
#include "ranks/link.h"

namespace minim::placement {

// Returns the plug-in of a kind, which stays loaded until the process ends. Throws not_found, naming the folders searched,
// and unsupported if it cannot be loaded or was built for another version.
const backend::Plugin& load_plugin(std::string_view kind);

// Returns the plug-in for messages between processes. Throws as load_plugin().
const ranks::LinkPlugin& load_link_plugin();

// Returns the kinds of the backends in the folders, in alphabetical order.
std::vector<std::string> plugin_kinds();

}  // namespace minim::placement
