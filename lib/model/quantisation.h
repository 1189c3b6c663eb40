// What config.json of a quantised folder says of its weights. Tensors show most of it themselves (weights/assembled.h).
#pragma once

#include "base/json.h"
#include "weights/assembled.h"

namespace minim::model {

// Reads `quantization_config`, and refuses what is not supported: throws unsupported with the quantisation's name or the key and
// value, and format if the method cannot be told.
weights::PackingHints packing_hints(const json::Value& config);

}  // namespace minim::model
