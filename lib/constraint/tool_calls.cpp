#include "constraint/tool_calls.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "constraint/json_schema.h"

namespace minim::constraint {
namespace {

using json::Value;

constexpr std::string_view k_value_end = "</parameter>";

void check_name(const std::string& name, const std::string& where) {
    if (name.empty() || name.find_first_of("\"<>\n") != std::string::npos)
        fail(Status::invalid, "{}: a tool call cannot hold the name '{}'", where, name);
}

class Writer {
  public:
    Writer(Grammar& grammar, JsonText& text) : grammar_(grammar), text_(text) {}

    // <invoke name="...">, its parameters, </invoke>
    Part call(const std::string& name, const Value* parameters) {
        check_name(name, "tools");
        const std::string where = "tool " + name;
        const Value any_object = object_value();
        const Value& schema = parameters != nullptr ? *parameters : any_object;
        JsonSchema json(text_, schema, work_);
        std::vector<Part> bodies;
        for (const Value& alternative : json.document().alternatives(schema, where))
            bodies.push_back(parameter_list(json, alternative, where));
        json.finish();
        return grammar_.sequence({grammar_.text(format_text("<invoke name=\"{}\">\n", name)),
                                  grammar_.choice(std::move(bodies)), grammar_.text("</invoke>\n")});
    }

  private:
    Part parameter_list(JsonSchema& json, const Value& schema, const std::string& where) {
        const Value* properties = json::find(&schema, "properties");
        const Value* required = json::find(&schema, "required");
        const auto is_required = [&](const std::string& name) {
            return required != nullptr && std::ranges::any_of(required->items, [&](const Value& other) {
                       return other.text == name;
                   });
        };
        std::vector<Part> parts;
        for (size_t i = 0; properties != nullptr && i < properties->keys.size(); ++i) {
            const std::string& name = properties->keys[i];
            check_name(name, where);
            const Part parameter =
                grammar_.sequence({grammar_.text(format_text("<parameter name=\"{}\">", name)),
                                   value(json, properties->items[i], format_text("{}/{}", where, name)),
                                   grammar_.text(k_value_end), grammar_.text("\n")});
            parts.push_back(is_required(name) ? parameter : grammar_.optional(parameter));
        }
        return grammar_.sequence(std::move(parts));
    }

    Part value(JsonSchema& json, const Value& schema, const std::string& where) {
        std::vector<Part> parts;
        for (const Value& alternative : json.document().alternatives(schema, where)) {
            if (json::find(&alternative, "enum") != nullptr) {
                for (const Value* each : json.listed_values(alternative, where))
                    parts.push_back(each->is_string() ? grammar_.text(each->text) : text_.literal(*each));
                continue;
            }
            std::vector<std::string> types = json.types_of(alternative);
            if (std::erase(types, "string") > 0) parts.push_back(raw_string(json, alternative, where));
            for (const std::string& type : types) parts.push_back(json.of_type(type, alternative, where));
        }
        return grammar_.choice(std::move(parts));
    }

    Part raw_string(JsonSchema& json, const Value& schema, const std::string& where) {
        const bool is_plain = std::ranges::none_of(schema.keys, [](const std::string& key) {
            return key == "minLength" || key == "maxLength" || key == "pattern" || key == "format";
        });
        if (is_plain) return grammar_.text_without(k_value_end);
        const Part any = utf8(grammar_, CodePoints().add('<').complement());
        return json.string_inside(schema, where, utf8_spelling(grammar_), any);
    }

    Grammar& grammar_;
    JsonText& text_;
    SchemaWork work_;  // of all tools
};

Part markup(Grammar& grammar, const tokenizer::Tokenizer& tokenizer, std::string_view text) {
    const auto token = tokenizer.find(text);
    return token ? grammar.token(*token) : grammar.text(text);
}

}  // namespace

Grammar grammar_of_tool_calls(const Value& tools, const ToolChoice& choice,
                              const tokenizer::Tokenizer& tokenizer) {
    if (!tools.is_array()) fail(Status::invalid, "tools: a list is expected, not {}", json::to_text(tools));
    Grammar grammar;
    JsonText text(grammar);
    Writer writer(grammar, text);
    std::vector<Part> calls;
    for (const Value& tool : tools.items) {
        const Value* function = json::find(&tool, "function");
        if (function == nullptr) function = &tool;
        const Value* name = json::find(function, "name");
        if (name == nullptr || !name->is_string())
            fail(Status::invalid, "tools: {} has no name", json::to_text(tool));
        if (choice.name.empty() || name->text == choice.name)
            calls.push_back(writer.call(name->text, json::find(function, "parameters")));
    }
    if (calls.empty()) {
        if (choice.name.empty()) fail(Status::invalid, "tools: the list is empty");
        fail(Status::invalid, "tools: there is no tool '{}'", choice.name);
    }
    const Part call = grammar.call(grammar.add_rule("call", grammar.choice(std::move(calls))));
    const Part whole = grammar.sequence(
        {grammar.optional(grammar.text("\n")), markup(grammar, tokenizer, "<minimax:tool_call>"),
         grammar.text("\n"), grammar.repeat(call, 1, choice.is_single ? 1 : -1),
         markup(grammar, tokenizer, "</minimax:tool_call>")});
    grammar.start_with(whole);
    return grammar;
}

}  // namespace minim::constraint
