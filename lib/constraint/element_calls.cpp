// SPDX-License-Identifier: Apache-2.0
#include "constraint/element_calls.h"

#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "chat/markup.h"
#include "constraint/json_array.h"
#include "constraint/object_members.h"
#include "constraint/regex.h"
#include "constraint/schema_values.h"

namespace minim::constraint {

using chat::k_m3;
using json::Value;

namespace {

constexpr std::string_view k_no_tool_name = "\"<>\n";  // no name of a tool has one of these
constexpr std::string_view k_no_element_name = "<>]";  // no name of an element has one of these

void check_element_name(const std::string& name, const std::string& where) {
    check_call_name(name, k_no_element_name, where);
    const bool is_trimmed = !chat::markup::is_space(name.front()) && !chat::markup::is_space(name.back());
    if (!is_trimmed || name[0] == '/' || ("<" + name).starts_with(k_m3.invoke_open))
        fail(Status::invalid, "{}: a tool call cannot hold the name '{}'", where, name);
}

// Returns names of elements that no schema names.
TextAutomaton free_names() {
    const CodePoints no_name = CodePoints().add('<').add('>').add(']').add('/').add('=').add(0, ' ');
    RegexNode name = characters_node(no_name.complement());
    return automaton_of(repeat_node(std::move(name), 1, -1), Match::whole, "tools");
}

}  // namespace

ElementCalls::ElementCalls(Grammar& grammar, JsonText& text, const tokenizer::Tokenizer& tokenizer)
    : grammar_(grammar),
      text_(text),
      spelling_(utf8_spelling(grammar)),
      mark_(tag_part(grammar, tokenizer, k_m3.mark)),
      value_end_(grammar.sequence({mark_, grammar.text(k_m3.parameter_close)})),
      without_mark_(texts_without(k_m3.mark)),
      names_(free_names()) {}

Part ElementCalls::call(const std::string& name, const Value* parameters) {
    check_call_name(name, k_no_tool_name, "tools");
    work_.begin_tool();
    rules_.clear();
    const std::string where = "tool " + name;
    std::vector<Part> bodies;
    if (parameters == nullptr) {
        bodies.push_back(grammar_.empty());
    } else {
        JsonSchema json(text_, *parameters, work_.of_tool());
        for (const Value& flat : json.document().alternatives(json.document().root(), where)) {
            const Value* type = json::find(&flat, "type");
            if (const Value* listed = json::find(&flat, "enum")) {
                for (const Value& each : listed->items)
                    if (each.is_object()) bodies.push_back(literal(each, where));
            } else if (type == nullptr || is_of_type(object_value(), *type)) {
                bodies.push_back(members(json, flat, where, true));
            }
        }
        define_values(json);
        json.finish();
    }
    return grammar_.sequence({mark_, grammar_.text(format_text("{}\"{}\">", k_m3.invoke_open, name)),
                              grammar_.choice(std::move(bodies)), mark_,
                              grammar_.text(format_text("{}\n", k_m3.invoke_close))});
}

Part ElementCalls::block(const tokenizer::Tokenizer& tokenizer, Part call, bool is_single) {
    return grammar_.sequence({mark_, tag_part(grammar_, tokenizer, k_m3.block_open), grammar_.text("\n"),
                              grammar_.repeat(call, 1, is_single ? 1 : -1), mark_,
                              tag_part(grammar_, tokenizer, k_m3.block_close)});
}

// Returns an element; `value` is as value() returns it, with the beginning of the closing tag.
Part ElementCalls::element(const std::string& name, Part value) {
    return grammar_.sequence({mark_, grammar_.text(format_text("{}{}>", k_m3.parameter_open, name)), value,
                              grammar_.text(name + ">")});
}

// Returns an element with one of many names.
Part ElementCalls::free_element(const TextAutomaton& names, Part value) {
    grammar_.compare_elements();
    const Part name = grammar_.sequence({part_of(grammar_, names, spelling_), grammar_.text(">")});
    return grammar_.sequence({mark_, grammar_.text(k_m3.parameter_open), name, value, name});
}

Part ElementCalls::members(JsonSchema& json, const Value& flat, const std::string& where,
                           bool are_arguments) {
    const MemberWriting writing = {
        .named =
            [&](const std::string& name, const Value& schema) {
                check_element_name(name, where);
                return element(name, value(schema, format_text("{}/{}", where, name)));
            },
        .further =
            [&](const TextAutomaton* names, const Value& schema, const std::string& place) {
                return free_element(names != nullptr ? both(names_, *names, place) : names_,
                                    value(schema, place));
            },
        .separator = grammar_.empty(),
        .empty_properties_close = are_arguments,
    };
    return member_list(json, grammar_, flat, where, writing);
}

Part ElementCalls::items(JsonSchema& json, const Value& flat, const std::string& where) {
    const std::string item(chat::k_m3_item);
    const ItemWriting writing = {
        .item = [&](const Value& schema,
                    const std::string& place) { return element(item, value(schema, place)); },
        .any_item = [&] { return element(item, any_value()); },
        .literal =
            [&](const Value& each) {
                return element(item, grammar_.sequence({literal(each, where), value_end_}));
            },
        .repeated = [&](Part each, int64_t least,
                        int64_t most) { return grammar_.counted(each, least, most, where); },
        .whole = [](Part all) { return all; },
        .separator = grammar_.empty(),
    };
    return item_list(json, grammar_, flat, where, writing);
}

// Returns a value and the beginning of its closing tag, so that no text of this rule can continue where another text of it ends.
Part ElementCalls::value(const Value& schema, const std::string& where) {
    return rules_.call(grammar_, schema, where);
}

void ElementCalls::define_values(JsonSchema& json) {
    rules_.define_all(grammar_, [&](const Value& schema, const std::string& where) {
        std::vector<Part> parts;
        for (const Value& flat : json.document().alternatives(schema, where)) {
            if (allows_any(flat)) return any_value();
            parts.push_back(content(json, flat, where));
        }
        return grammar_.sequence({grammar_.choice(std::move(parts)), value_end_});
    });
}

// Returns any text, or any elements.
Part ElementCalls::any_value() {
    if (!any_value_) {
        any_value_ = grammar_.declare("value");
        const Part any = free_element(names_, grammar_.call(*any_value_));
        grammar_.define(*any_value_,
                        grammar_.sequence({grammar_.choice({part_of(grammar_, without_mark_, spelling_),
                                                            grammar_.repeat(any, 1, -1)}),
                                           value_end_}));
    }
    return grammar_.call(*any_value_);
}

// Returns the values of a flat schema that is not free.
Part ElementCalls::content(JsonSchema& json, const Value& flat, const std::string& where) {
    std::vector<Part> parts;
    if (const Value* listed = json::find(&flat, "enum")) {
        for (const Value& each : listed->items) parts.push_back(literal(each, where));
        return grammar_.choice(std::move(parts));
    }
    for (const std::string& type : JsonSchema::types_of(flat)) {
        if (type == "string") {
            parts.push_back(text(json, flat, where));
        } else if (type == "object") {
            const Value own = without_excluded(flat, Value::Kind::object, where);
            parts.push_back(members(json, own, where, false));
        } else if (type == "array") {
            parts.push_back(items(json, without_excluded(flat, Value::Kind::array, where), where));
        } else {
            parts.push_back(json.of_type(type, flat, where));
        }
    }
    return grammar_.choice(std::move(parts));
}

Part ElementCalls::text(JsonSchema& json, const Value& flat, const std::string& where) {
    const auto texts = json.string_texts(flat, where);
    const TextAutomaton kept = texts ? both(*texts, without_mark_, where) : without_mark_;
    return json.part_of_length(kept, flat, spelling_, where);
}

// Returns exactly this value. Members that are null are left out, as the template does.
Part ElementCalls::literal(const Value& value, const std::string& where) {
    if (value.is_string())
        return without_mark_.has(value.text) ? grammar_.text(value.text) : grammar_.nothing();
    if (!value.is_array() && !value.is_object()) return text_.literal(value);
    std::vector<Part> parts;
    for (size_t i = 0; i < value.items.size(); ++i) {
        const std::string name = value.is_object() ? value.keys[i] : std::string(chat::k_m3_item);
        if (value.is_object() && value.items[i].is_null()) continue;
        check_element_name(name, where);
        parts.push_back(element(name, grammar_.sequence({literal(value.items[i], where), value_end_})));
    }
    return grammar_.sequence(std::move(parts));
}

}  // namespace minim::constraint
