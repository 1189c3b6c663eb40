// SPDX-License-Identifier: Apache-2.0
// Reads prompts that are texts or token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fields.h"
#include "serving.h"

namespace server {

// Returns the tokens of a text in the field `name`. One that cannot fit is refused before the work.
std::vector<int32_t> tokens_of_text(const std::string& text, const char* name, const ServedModel& serving,
                                    int32_t specials = MINIM_SPECIALS_EXACT);

// Returns the tokens of a prompt in llama.cpp's form: a text, or a list of token ids and texts.
std::vector<int32_t> tokens_of_mixed(const Json& prompt, const Fields& request, const char* name,
                                     const ServedModel& serving, int32_t specials = MINIM_SPECIALS_EXACT);

// Throws ApiError 400 for an empty prompt and for one that leaves no room for an answer.
void check_prompt(const std::vector<int32_t>& ids, const Fields& request, const char* name,
                  const ServedModel& serving);

}  // namespace server
