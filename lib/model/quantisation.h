// SPDX-License-Identifier: Apache-2.0
// Reads what config.json of a quantised folder says about its weights. Tensors show most of it themselves
// (weights/assembled.h).
#pragma once

#include "base/json.h"
#include "weights/assembled.h"

namespace minim::model {

// Reads `quantization_config`. Throws unsupported, with the name of the quantisation or the key and value, and format
// if the method is not stated.
weights::PackingHints packing_hints(const json::Value& config);

}  // namespace minim::model
