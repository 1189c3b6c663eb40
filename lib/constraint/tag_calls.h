// SPDX-License-Identifier: Apache-2.0
// The grammar of calls in the format of MiniMax-M2 models: each parameter is a tag. Strings are written literally up to
// `</parameter>`, everything else as JSON.
#pragma once

#include <string>

#include "base/json.h"
#include "constraint/grammar.h"
#include "constraint/json_schema.h"
#include "constraint/json_text.h"
#include "constraint/text_automaton.h"
#include "constraint/tool_names.h"

namespace minim::constraint {

class TagCalls {
  public:
    TagCalls(Grammar& grammar, JsonText& text);

    // Returns one call: <invoke name="...">, its parameters, </invoke>. Without a schema there are no parameters.
    Part call(const std::string& name, const json::Value* parameters);
    // Returns a block of calls.
    Part block(const tokenizer::Tokenizer& tokenizer, Part call, bool is_single);

  private:
    Part parameter_list(JsonSchema& json, const json::Value& flat, const std::string& where);
    Part value(JsonSchema& json, const json::Value& schema, const std::string& where);
    Part raw_string(JsonSchema& json, const json::Value& flat, const std::string& where);

    Grammar& grammar_;
    JsonText& text_;
    Spelling spelling_;
    TextAutomaton without_end_;
    TextAutomaton names_;
    Part value_end_;
    ToolsWork work_;
};

}  // namespace minim::constraint
