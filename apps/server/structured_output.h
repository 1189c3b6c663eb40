// SPDX-License-Identifier: Apache-2.0
// Which texts an answer may be. One reader for all routes and for the spellings of all APIs, so that no constraint is dropped: a
// field is kept, or the request is refused with the field's name.
#pragma once

#include <string>
#include <vector>

#include "fields.h"

namespace server {

struct TextRule {
    enum class Kind { any, schema, regex, choice, grammar };

    Kind kind = Kind::any;
    std::string text;                  // a JSON Schema, an expression or a grammar
    std::vector<std::string> choices;  // the texts that are allowed
    std::string field;                 // the field that asked for it
};

// Reads these fields, of which a request may have one:
//   response_format (text, json_object, json_schema, regex, grammar), text.format      OpenAI, Fireworks
//   output_format, output_config.format (json_schema)                                  Anthropic
//   structured_outputs, guided_json, guided_regex, guided_choice, guided_grammar       vLLM
//   json_schema, grammar                                                               llama.cpp
//   regex, ebnf, json_schema as text                                                   SGLang
// Throws ApiError 400 that names the field for any other form, and for two constraints.
TextRule read_text_rule(const Fields& request);

}  // namespace server
