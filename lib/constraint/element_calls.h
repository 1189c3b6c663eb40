// SPDX-License-Identifier: Apache-2.0
// The grammar of calls in the format of MiniMax-M3 models: each argument is an element, objects and lists are elements in
// elements, as the chat template writes them. Texts are any text without the mark, numbers and the like are written as JSON. The
// names of elements in objects without named members are free. No grammar can compare them with those of their closing tags:
// open_elements.h does.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "constraint/grammar.h"
#include "constraint/json_schema.h"
#include "constraint/json_text.h"
#include "constraint/schema_rules.h"
#include "constraint/text_automaton.h"
#include "constraint/tool_names.h"

namespace minim::constraint {

class ElementCalls {
  public:
    ElementCalls(Grammar& grammar, JsonText& text, const tokenizer::Tokenizer& tokenizer);

    // Returns one call: <invoke name="...">, its arguments, </invoke>. Without a schema there are no arguments.
    Part call(const std::string& name, const json::Value* parameters);
    // Returns a block of calls.
    Part block(const tokenizer::Tokenizer& tokenizer, Part call, bool is_single);

  private:
    Part members(JsonSchema& json, const json::Value& flat, const std::string& where, bool are_arguments);
    Part items(JsonSchema& json, const json::Value& flat, const std::string& where);
    Part element(const std::string& name, Part value);
    Part free_element(const TextAutomaton& names, Part value);
    Part value(const json::Value& schema, const std::string& where);
    Part any_value();
    void define_values(JsonSchema& json);
    Part content(JsonSchema& json, const json::Value& flat, const std::string& where);
    Part text(JsonSchema& json, const json::Value& flat, const std::string& where);
    Part literal(const json::Value& value, const std::string& where);

    Grammar& grammar_;
    JsonText& text_;
    Spelling spelling_;
    Part mark_;
    Part value_end_;  // the mark and the beginning of a closing tag
    TextAutomaton without_mark_;
    TextAutomaton names_;
    std::optional<RuleId> any_value_;
    ToolsWork work_;
    SchemaRules rules_;  // of the last tool
};

}  // namespace minim::constraint
