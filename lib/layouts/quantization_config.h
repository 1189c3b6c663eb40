// SPDX-License-Identifier: Apache-2.0
// Reads what `quantization_config` of config.json declares.
#pragma once

#include "base/json.h"
#include "layouts/declared.h"

namespace minim::layouts {

// Reads `quantization_config` of config.json. Throws unsupported, with the name of the quantisation or the key and value,
// and format if the method is not stated.
PackingHints packing_hints(const json::Value& config);

// Returns what `quantization_config` of config.json declares. Returns no entries if its writer is unknown, or if it
// declares nothing.
Declaration declared_methods(const json::Value& quantization);

}  // namespace minim::layouts
