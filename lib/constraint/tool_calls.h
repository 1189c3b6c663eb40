// SPDX-License-Identifier: Apache-2.0
// The grammar of tool calls in the chat format of the model (tag_calls.h, element_calls.h), for requests that must be answered with
// a call. Parameters are in the order of the tool's schema; others are allowed only if it requires them or has no `properties`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "constraint/grammar.h"
#include "tokenizer/tokenizer.h"

namespace minim::constraint {

struct ToolChoice {
    std::string name;        // the tool to call; empty: any
    bool is_single = false;  // exactly one call, not one or several
    bool relaxes = false;    // keywords that cannot be enforced are left out (relaxed_schema.h)
    // With `relaxes`: also keywords that make the automaton of a tool larger than its part of what the list may have.
    bool divides_limits = false;
};

// `tools` is a list as requests hold it: `{"type": "function", "function": {"name", "parameters"}}`, or the inner
// object alone, also with `input_schema` or `inputSchema`. Members that are null count as absent. Throws invalid if
// `tools` is not such a list, if no tool has the name, and for names that the format cannot express; else throws what
// grammar_of_schema throws. Appends a line for each removed keyword to `left_out`, which may be null.
Grammar grammar_of_tool_calls(const json::Value& tools, const ToolChoice& choice,
                              const tokenizer::Tokenizer& tokenizer,
                              std::vector<std::string>* left_out = nullptr);

}  // namespace minim::constraint
