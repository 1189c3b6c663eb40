// SPDX-License-Identifier: Apache-2.0
#include "constraint/tool_calls.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "chat/family.h"
#include "constraint/automaton.h"
#include "constraint/element_calls.h"
#include "constraint/json_text.h"
#include "constraint/relaxed_schema.h"
#include "constraint/schema_values.h"
#include "constraint/tag_calls.h"

namespace minim::constraint {
namespace {

using json::Value;

// The names of the member with a tool's parameters, in the formats of OpenAI, Anthropic and the Model Context Protocol.
constexpr auto k_parameters = std::to_array<const char*>({"parameters", "input_schema", "inputSchema"});

// The calls of the model's chat format.
class CallWriter {
  public:
    CallWriter(Grammar& grammar, JsonText& text, const tokenizer::Tokenizer& tokenizer)
        : tokenizer_(tokenizer), calls_(calls_of(grammar, text, tokenizer)) {}

    Part call(const std::string& name, const Value* parameters) {
        return std::visit([&](auto& calls) { return calls.call(name, parameters); }, calls_);
    }
    Part block(Part call, bool is_single) {
        return std::visit([&](auto& calls) { return calls.block(tokenizer_, call, is_single); }, calls_);
    }

  private:
    using Calls = std::variant<TagCalls, ElementCalls>;

    static Calls calls_of(Grammar& grammar, JsonText& text, const tokenizer::Tokenizer& tokenizer) {
        if (chat::markup_of(tokenizer).family == chat::Family::m3)
            return Calls(std::in_place_type<ElementCalls>, grammar, text, tokenizer);
        return Calls(std::in_place_type<TagCalls>, grammar, text);
    }

    const tokenizer::Tokenizer& tokenizer_;
    Calls calls_;
};

// With `n_tools` > 0, the automaton of the tool takes at most this part of what a list may have.
std::vector<std::string> relax_tool(const std::string& name, Value& parameters,
                                    const tokenizer::Tokenizer& tokenizer, size_t n_tools) {
    const auto compile = [&](const Value& schema) {
        Grammar grammar;
        JsonText text(grammar);
        const Part call = CallWriter(grammar, text, tokenizer).call(name, &schema);
        if (n_tools == 0) return;
        grammar.start_with(call);
        make_automaton(grammar, 1, n_tools);
    };
    return relax(parameters, compile, "tool " + name);
}

}  // namespace

Grammar grammar_of_tool_calls(const Value& tools, const ToolChoice& choice,
                              const tokenizer::Tokenizer& tokenizer, std::vector<std::string>* left_out) {
    if (!tools.is_array()) fail(Status::invalid, "tools: a list is expected, not {}", json::to_text(tools));
    Grammar grammar;
    JsonText text(grammar);
    CallWriter writer(grammar, text, tokenizer);
    std::vector<Part> calls;
    for (const Value& tool : tools.items) {
        const Value* function = find_given(tool, "function");
        if (function == nullptr) function = &tool;
        const Value* name = json::find(function, "name");
        if (name == nullptr || !name->is_string())
            fail(Status::invalid, "tools: {} has no name", json::to_text(tool));
        const Value* parameters = nullptr;
        for (const char* key : k_parameters)
            if (parameters == nullptr) parameters = find_given(*function, key);
        if (!choice.name.empty() && name->text != choice.name) continue;
        Value relaxed;
        if (choice.relaxes && parameters != nullptr) {
            relaxed = *parameters;
            std::vector<std::string> notes =
                relax_tool(name->text, relaxed, tokenizer, choice.divides_limits ? tools.items.size() : 0);
            if (left_out != nullptr) std::ranges::move(notes, std::back_inserter(*left_out));
            parameters = &relaxed;
        }
        try {
            calls.push_back(writer.call(name->text, parameters));
        } catch (const Error& error) {  // of the tools together
            if (!choice.relaxes || error.status() != Status::unsupported) throw;
            if (left_out != nullptr)
                left_out->push_back(
                    format_text("tool {} is left out as a whole: {}", name->text, error.what()));
            relaxed = boolean_schema(true);
            calls.push_back(writer.call(name->text, &relaxed));
        }
    }
    if (calls.empty()) {
        if (choice.name.empty()) fail(Status::invalid, "tools: the list is empty");
        fail(Status::invalid, "tools: there is no tool '{}'", choice.name);
    }
    const Part call = grammar.call(grammar.add_rule("call", grammar.choice(std::move(calls))));
    grammar.start_with(writer.block(call, choice.is_single));
    return grammar;
}

}  // namespace minim::constraint
