// How the files of a quantised folder say that its weights are quantised. The tensors must agree with each of them
// (weights/assembled.h), and the files with one another.
#pragma once

#include <string_view>

#include "base/json.h"
#include "weights/assembled.h"

namespace minim::model {

// What `quantization_config` of config.json declares. No entries if it is of a writer whose words are not known, or says nothing.
weights::Declaration declared_methods(const json::Value& quantization);

// Adds what hf_quant_config.json declares. Throws format if it is no JSON object or contradicts what config.json declares.
void add_hf_quant_config(std::string_view text, weights::PackingHints& hints);

}  // namespace minim::model
