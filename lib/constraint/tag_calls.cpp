// SPDX-License-Identifier: Apache-2.0
#include "constraint/tag_calls.h"

#include <utility>
#include <vector>

#include "base/format_text.h"
#include "chat/markup.h"
#include "constraint/object_members.h"
#include "constraint/regex.h"
#include "constraint/schema_values.h"

namespace minim::constraint {

using chat::k_m2;
using json::Value;

namespace {

constexpr std::string_view k_no_name = "\"<>\n";  // no name has one of these

}  // namespace

TagCalls::TagCalls(Grammar& grammar, JsonText& text)
    : grammar_(grammar),
      text_(text),
      spelling_(utf8_spelling(grammar)),
      without_end_(texts_without(k_m2.parameter_close)),
      value_end_(grammar.text(format_text("{}\n", k_m2.parameter_close))) {
    const CodePoints no_name = CodePoints().add('"').add('<').add('>').add('\n');
    RegexNode name = characters_node(no_name.complement());
    names_ = automaton_of(repeat_node(std::move(name), 1, -1), Match::whole, "tools");
}

Part TagCalls::call(const std::string& name, const Value* parameters) {
    check_call_name(name, k_no_name, "tools");
    work_.begin_tool();
    const std::string where = "tool " + name;
    std::vector<Part> bodies;
    if (parameters == nullptr) {
        bodies.push_back(grammar_.empty());
    } else {
        JsonSchema json(text_, *parameters, work_.of_tool());
        for (const Value& flat : json.document().alternatives(json.document().root(), where))
            bodies.push_back(parameter_list(json, flat, where));
        json.finish();
    }
    return grammar_.sequence({grammar_.text(format_text("{}\"{}\">\n", k_m2.invoke_open, name)),
                              grammar_.choice(std::move(bodies)),
                              grammar_.text(format_text("{}\n", k_m2.invoke_close))});
}

Part TagCalls::parameter_list(JsonSchema& json, const Value& flat, const std::string& where) {
    const auto named = [&](const std::string& name, const Value& schema) {
        check_call_name(name, k_no_name, where);
        return grammar_.sequence({grammar_.text(format_text("{}\"{}\">", k_m2.parameter_open, name)),
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
                return grammar_.sequence({grammar_.text(format_text("{}\"", k_m2.parameter_open)),
                                          part_of(grammar_, allowed, spelling_), grammar_.text("\">"),
                                          value(json, schema, place)});
            },
        .separator = grammar_.empty(),
        .empty_properties_close = true,
    };
    return member_list(json, grammar_, flat, where, writing);
}

// Returns a value with the tag that ends it, so that no text of this rule can continue where another text of it ends.
Part TagCalls::value(JsonSchema& json, const Value& schema, const std::string& where) {
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

Part TagCalls::raw_string(JsonSchema& json, const Value& flat, const std::string& where) {
    const auto texts = json.string_texts(flat, where);
    const TextAutomaton kept = texts ? both(*texts, without_end_, where) : without_end_;
    return json.part_of_length(kept, flat, spelling_, where);
}

Part TagCalls::block(const tokenizer::Tokenizer& tokenizer, Part call, bool is_single) {
    return grammar_.sequence({grammar_.optional(grammar_.text("\n")),
                              tag_part(grammar_, tokenizer, k_m2.block_open), grammar_.text("\n"),
                              grammar_.repeat(call, 1, is_single ? 1 : -1),
                              tag_part(grammar_, tokenizer, k_m2.block_close)});
}

}  // namespace minim::constraint
