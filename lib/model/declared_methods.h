// SPDX-License-Identifier: Apache-2.0
// The quantisation methods that the files of a quantised folder declare. The tensors must agree with each declaration
// (weights/assembled.h), and the declarations with each other.
#pragma once

#include <string_view>

#include "base/json.h"
#include "weights/assembled.h"

namespace minim::model {

// Returns what `quantization_config` of config.json declares. Returns no entries if its writer is unknown, or if it
// declares nothing.
weights::Declaration declared_methods(const json::Value& quantization);

// Adds what hf_quant_config.json declares. Throws format if it is not a JSON object or contradicts config.json.
void add_hf_quant_config(std::string_view text, weights::PackingHints& hints);

}  // namespace minim::model
