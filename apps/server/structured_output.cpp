// SPDX-License-Identifier: Apache-2.0
#include "structured_output.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace server {

namespace {

using Kind = TextRule::Kind;
using Rules = std::vector<TextRule>;

constexpr std::string_view k_any_object = R"({"type":"object"})";
constexpr size_t k_max_choices = 10000;

// The simple fields, of a request and of `structured_outputs`.
struct RuleField {
    const char* name;
    Kind kind;
};
constexpr std::array k_request_fields = {
    RuleField{"guided_json", Kind::schema},   RuleField{"guided_regex", Kind::regex},
    RuleField{"guided_choice", Kind::choice}, RuleField{"guided_grammar", Kind::grammar},
    RuleField{"json_schema", Kind::schema},   RuleField{"regex", Kind::regex},
    RuleField{"ebnf", Kind::grammar},         RuleField{"grammar", Kind::grammar},
};
constexpr std::array k_vllm_members = {
    RuleField{"json", Kind::schema},
    RuleField{"regex", Kind::regex},
    RuleField{"choice", Kind::choice},
    RuleField{"grammar", Kind::grammar},
};

// Returns whether an object is not a schema but something around one, as in OpenAI's json_schema: {"name", "schema"}.
bool wraps_a_schema(const Json& value) {
    if (!value.is_object() || !value.contains("schema") || !value["schema"].is_object()) return false;
    constexpr std::array k_keywords = {"type",  "properties", "$ref",  "anyOf", "oneOf",
                                       "allOf", "enum",       "const", "items", "$defs"};
    return std::ranges::none_of(k_keywords, [&](const char* keyword) { return value.contains(keyword); });
}

// Returns the JSON text of a schema, which may be given as JSON or as a text.
std::string schema_text(const Fields& owner, const char* name) {
    const Json& value = *owner.find(name);
    if (value.is_string()) {
        const Json parsed = Json::parse(value.get_ref<const std::string&>(), nullptr, false);
        if (!parsed.is_object() && !parsed.is_boolean())
            owner.refuse(name, "is a text that is not the JSON of a schema");
        if (wraps_a_schema(parsed))
            owner.refuse(name, "must be the schema itself, not an object that has it");
        return value;  // its numbers keep their digits
    }
    if (!value.is_object() && !value.is_boolean())
        owner.refuse(name, fmt::format("must be a JSON Schema, not {}", kind_of(value)));
    if (wraps_a_schema(value)) owner.refuse(name, "must be the schema itself, not an object that has it");
    return to_text(value);
}

std::vector<std::string> read_choices(const Fields& owner, const char* name) {
    const Json& list = *owner.array(name);
    if (list.empty()) owner.refuse(name, "has no texts, so no answer is possible");
    if (list.size() > k_max_choices)
        owner.refuse(name, fmt::format("has {} texts; at most {} are possible", list.size(), k_max_choices));
    std::vector<std::string> choices;
    for (const Json& choice : list) {
        if (!choice.is_string())
            owner.refuse(name, fmt::format("must have strings only, not {}", kind_of(choice)));
        choices.push_back(choice);
    }
    return choices;
}

// Adds the rule of a field, if the field is there.
void add_rule(const Fields& owner, const char* name, Kind kind, Rules& rules) {
    if (!owner.has(name)) return;
    TextRule rule;
    rule.kind = kind;
    rule.field = owner.place(name);
    if (kind == Kind::schema) {
        rule.text = schema_text(owner, name);
    } else if (kind == Kind::choice) {
        rule.choices = read_choices(owner, name);
    } else {
        rule.text = *owner.text(name);
        if (rule.text.empty() && kind == Kind::grammar) return;  // clients of llama.cpp send "" for none
        if (rule.text.empty()) owner.refuse(name, "is empty");
    }
    rules.push_back(std::move(rule));
}

void add_any_object(const std::string& field, Rules& rules) {
    rules.push_back({Kind::schema, std::string(k_any_object), {}, field});
}

// Reads OpenAI's object of a format, as response_format and as text.format, and what others have made of it.
void add_format(const Fields& owner, const char* name, Rules& rules) {
    const Json* given = owner.object(name);
    if (given == nullptr) return;
    const Fields format(*given, owner.place(name));
    const std::string type = format.required_text("type");
    const size_t n_before = rules.size();
    if (type == "text") return;
    if (type == "json_object") {
        if (format.has("schema")) {
            add_rule(format, "schema", Kind::schema, rules);
        } else {
            add_any_object(owner.place(name), rules);
        }
    } else if (type == "json_schema") {
        const Json* wrapped = format.object("json_schema");
        if (wrapped == nullptr && !format.has("schema"))
            format.refuse("schema", "is required, or json_schema.schema");
        const Fields inner(wrapped != nullptr ? *wrapped : *given,
                           wrapped != nullptr ? format.place("json_schema") : owner.place(name));
        if (!inner.has("schema")) inner.refuse("schema", "is required: a JSON Schema");
        add_rule(inner, "schema", Kind::schema, rules);
    } else if (type == "regex" || type == "grammar") {
        const char* text = type == "grammar" ? "grammar" : format.has("regex") ? "regex" : "pattern";
        const Kind kind = type == "grammar" ? Kind::grammar : Kind::regex;
        if (format.required_text(text).empty()) format.refuse(text, "is empty");
        add_rule(format, text, kind, rules);
    } else {
        format.refuse("type",
                      fmt::format("is '{}'; it must be text, json_object, json_schema, regex or grammar",
                                  type.substr(0, 40)));
    }
    if (rules.size() > n_before) rules.back().field = owner.place(name);
}

// Reads Anthropic's object of a format.
void add_anthropic_format(const Fields& owner, const char* name, Rules& rules) {
    const Json* given = owner.object(name);
    if (given == nullptr) return;
    const Fields format(*given, owner.place(name));
    const std::string type = format.required_text("type");
    if (type != "json_schema")
        format.refuse("type", fmt::format("is '{}'; it must be json_schema", type.substr(0, 40)));
    if (!format.has("schema")) format.refuse("schema", "is required: a JSON Schema");
    add_rule(format, "schema", Kind::schema, rules);
    rules.back().field = owner.place(name);
}

// Reads vLLM's structured_outputs. A member that is not known could be a constraint, so it is refused.
void add_structured_outputs(const Fields& request, Rules& rules) {
    const Json* given = request.object("structured_outputs");
    if (given == nullptr) return;
    const Fields fields(*given, "structured_outputs");
    for (const auto& [name, value] : given->items()) {
        const bool is_off = value.is_null() || value == false;
        const bool is_rule = std::ranges::any_of(
            k_vllm_members, [&field = name](const RuleField& known) { return field == known.name; });
        // Members that the schema does not list are never generated.
        const bool is_kept = name == "json_object" || name == "disable_additional_properties";
        const bool is_backend = name == "backend" || name.starts_with('_') || name == "disable_fallback";
        if (!is_off && !is_rule && !is_kept && !is_backend)
            fields.refuse(name.substr(0, 60).c_str(), "is not possible here");
    }
    for (const RuleField& member : k_vllm_members) add_rule(fields, member.name, member.kind, rules);
    if (fields.boolean("json_object").value_or(false)) add_any_object(fields.place("json_object"), rules);
}

}  // namespace

TextRule read_text_rule(const Fields& request) {
    Rules rules;
    add_format(request, "response_format", rules);
    if (const Json* text = request.object("text")) add_format(Fields(*text, "text"), "format", rules);
    add_anthropic_format(request, "output_format", rules);
    if (const Json* config = request.object("output_config"))
        add_anthropic_format(Fields(*config, "output_config"), "format", rules);
    add_structured_outputs(request, rules);
    for (const RuleField& field : k_request_fields) add_rule(request, field.name, field.kind, rules);
    if (request.boolean("guided_json_object").value_or(false)) add_any_object("guided_json_object", rules);
    if (request.boolean("grammar_lazy").value_or(false))
        request.refuse("grammar_lazy", "is not possible: a grammar applies from the start of the answer");
    if (rules.empty()) return {};
    if (rules.size() > 1) {
        std::vector<std::string> names;
        for (const TextRule& rule : rules) names.push_back(rule.field);
        request.refuse(rules[1].field.c_str(),
                       fmt::format("is one of {} constraints ({}); an answer can have one", rules.size(),
                                   fmt::join(names, ", ")));
    }
    return std::move(rules.front());
}

}  // namespace server
