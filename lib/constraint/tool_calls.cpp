// SPDX-License-Identifier: Apache-2.0
#include "constraint/tool_calls.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "chat/markup.h"
#include "constraint/automaton.h"
#include "constraint/json_schema.h"
#include "constraint/object_members.h"
#include "constraint/regex.h"
#include "constraint/relaxed_schema.h"
#include "constraint/schema_values.h"

namespace minim::constraint {
namespace {

using json::Value;

namespace markup = chat::markup;

void check_name(const std::string& name, const std::string& where) {
    if (name.empty() || name.find_first_of("\"<>\n") != std::string::npos)
        fail(Status::invalid, "{}: a tool call cannot hold the name '{}'", where, name);
}

// The names of the member with a tool's parameters, in the formats of OpenAI, Anthropic and the Model Context Protocol.
constexpr auto k_parameters = std::to_array<const char*>({"parameters", "input_schema", "inputSchema"});

class Writer {
  public:
    Writer(Grammar& grammar, JsonText& text)
        : grammar_(grammar),
          text_(text),
          spelling_(utf8_spelling(grammar)),
          without_end_(texts_without(markup::k_parameter_close)),
          value_end_(grammar.text(format_text("{}\n", markup::k_parameter_close))) {
        const CodePoints no_name = CodePoints().add('"').add('<').add('>').add('\n');
        RegexNode name = characters_node(no_name.complement());
        names_ = automaton_of(repeat_node(std::move(name), 1, -1), Match::whole, "tools");
    }

    // Returns one call: <invoke name="...">, its parameters, </invoke>. Without a schema there are no parameters.
    Part call(const std::string& name, const Value* parameters) {
        check_name(name, "tools");
        begin_tool();
        const std::string where = "tool " + name;
        std::vector<Part> bodies;
        if (parameters == nullptr) {
            bodies.push_back(grammar_.empty());
        } else {
            JsonSchema json(text_, *parameters, work_);
            for (const Value& flat : json.document().alternatives(json.document().root(), where))
                bodies.push_back(parameter_list(json, flat, where));
            json.finish();
        }
        return grammar_.sequence({grammar_.text(format_text("{}\"{}\">\n", markup::k_invoke_open, name)),
                                  grammar_.choice(std::move(bodies)),
                                  grammar_.text(format_text("{}\n", markup::k_invoke_close))});
    }

  private:
    // The limits of a tool's work are its own, as long as the tools do not need very much together.
    void begin_tool() {
        constexpr size_t k_max_tools = 8;  // tools that may all reach the limits
        n_members_ += work_.n_members;
        n_checked_ += work_.n_checked;
        n_states_ += work_.n_states;
        work_ = {};
        if (n_members_ > k_max_tools * SchemaWork::k_max_members) work_.n_members = SchemaWork::k_max_members;
        if (n_checked_ > k_max_tools * SchemaWork::k_max_checked) work_.n_checked = SchemaWork::k_max_checked;
        if (n_states_ > k_max_tools * SchemaWork::k_max_states) work_.n_states = SchemaWork::k_max_states;
    }

    Part parameter_list(JsonSchema& json, const Value& flat, const std::string& where) {
        const auto named = [&](const std::string& name, const Value& schema) {
            check_name(name, where);
            return grammar_.sequence({grammar_.text(format_text("{}\"{}\">", markup::k_parameter_open, name)),
                                      value(json, schema, format_text("{}/{}", where, name))});
        };
        if (const Value* listed = json::find(&flat, "enum")) {
            std::vector<Part> lists;
            for (const Value& each : listed->items) {
                std::vector<Part> parts;
                for (size_t i = 0; i < each.keys.size(); ++i)
                    parts.push_back(named(each.keys[i], one_member("const", each.items[i])));
                if (each.is_object()) lists.push_back(grammar_.sequence(std::move(parts)));
            }
            return grammar_.choice(std::move(lists));
        }
        const Value* type = json::find(&flat, "type");
        if (type != nullptr && !is_of_type(object_value(), *type)) return grammar_.nothing();
        const MemberWriting writing = {
            .named = named,
            .further =
                [&](const TextAutomaton* names, const Value& schema, const std::string& place) {
                    const TextAutomaton allowed = names != nullptr ? both(names_, *names, place) : names_;
                    return grammar_.sequence({grammar_.text(format_text("{}\"", markup::k_parameter_open)),
                                              part_of(grammar_, allowed, spelling_), grammar_.text("\">"),
                                              value(json, schema, place)});
                },
            .separator = grammar_.empty(),
            .empty_properties_close = true,
        };
        return member_list(json, grammar_, flat, where, writing);
    }

    // Returns a value with the tag that ends it, so that no text of this rule can continue where another text of it ends.
    Part value(JsonSchema& json, const Value& schema, const std::string& where) {
        std::vector<Part> parts;
        for (const Value& flat : json.document().alternatives(schema, where)) {
            if (const Value* listed = json::find(&flat, "enum")) {
                for (const Value& each : listed->items) {
                    const bool is_text = each.is_string() && without_end_.has(each.text);
                    if (is_text || !each.is_string())
                        parts.push_back(is_text ? grammar_.text(each.text) : text_.literal(each));
                }
                continue;
            }
            std::vector<std::string> types = JsonSchema::types_of(flat);
            if (std::erase(types, "string") > 0) parts.push_back(raw_string(json, flat, where));
            for (const std::string& type : types) parts.push_back(json.of_type(type, flat, where));
        }
        const Part whole = grammar_.sequence({grammar_.choice(std::move(parts)), value_end_});
        return grammar_.call(grammar_.add_rule(where, whole));
    }

    Part raw_string(JsonSchema& json, const Value& flat, const std::string& where) {
        const auto texts = json.string_texts(flat, where);
        const TextAutomaton kept = texts ? both(*texts, without_end_, where) : without_end_;
        return json.part_of_length(kept, flat, spelling_, where);
    }

    Grammar& grammar_;
    JsonText& text_;
    Spelling spelling_;
    TextAutomaton without_end_;
    TextAutomaton names_;
    Part value_end_;
    SchemaWork work_;       // of the last tool
    size_t n_members_ = 0;  // of the tools before it, as in SchemaWork
    size_t n_checked_ = 0;
    size_t n_states_ = 0;
};

Part tag(Grammar& grammar, const tokenizer::Tokenizer& tokenizer, std::string_view text) {
    const auto token = tokenizer.find(text);
    return token ? grammar.token(*token) : grammar.text(text);
}

// With `n_tools` > 0, the automaton of the tool takes at most this part of what a list may have.
std::vector<std::string> relax_tool(const std::string& name, Value& parameters, size_t n_tools) {
    const auto compile = [&](const Value& schema) {
        Grammar grammar;
        JsonText text(grammar);
        const Part call = Writer(grammar, text).call(name, &schema);
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
    Writer writer(grammar, text);
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
                relax_tool(name->text, relaxed, choice.divides_limits ? tools.items.size() : 0);
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
    const Part whole =
        grammar.sequence({grammar.optional(grammar.text("\n")), tag(grammar, tokenizer, markup::k_block_open),
                          grammar.text("\n"), grammar.repeat(call, 1, choice.is_single ? 1 : -1),
                          tag(grammar, tokenizer, markup::k_block_close)});
    grammar.start_with(whole);
    return grammar;
}

}  // namespace minim::constraint
