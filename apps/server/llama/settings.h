// SPDX-License-Identifier: Apache-2.0
// The settings of an answer under llama.cpp's names, as /completion, /slots and /props report them.
#pragma once

#include "fields.h"
#include "json.h"
#include "sampling_fields.h"

namespace server {

// Returns the settings without texts of the request and without lists of tokens.
Json settings_json(const SamplingFields& fields);

// Reads `samplers`: names, or a text with a letter for each. A sampler that is not in the list is off. Temperature comes where the
// list has it: before or after all filters. Without the field it comes last, as in llama.cpp.
void read_samplers(const Fields& request, SamplingFields& fields);

}  // namespace server
