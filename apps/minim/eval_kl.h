// SPDX-License-Identifier: Apache-2.0
// KL divergence between two models, for commands besides `eval kl`.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "minim/minim.hpp"
#include "options.h"

namespace cli {

// Returns the divergence of options.model from options.reference_model over a text, in chunks of options.chunk_tokens tokens, with
// the members that `eval kl --json` prints. One model is open at a time. Throws minim::Exception.
nlohmann::ordered_json divergence_from_reference(const minim::Runtime& runtime, const Options& options,
                                                 const std::string& text, const minim::Cancel& cancel);

}  // namespace cli
