// SPDX-License-Identifier: Apache-2.0
#include "constraint/json_schema.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "constraint/decimal.h"
#include "constraint/json_array.h"
#include "constraint/number_texts.h"
#include "constraint/object_members.h"
#include "constraint/regex.h"
#include "constraint/schema_values.h"
#include "constraint/string_formats.h"

namespace minim::constraint {
namespace {

using json::Value;

bool has_any(const Value& schema, std::initializer_list<const char*> keys) {
    return std::ranges::any_of(keys, [&](const char* key) { return json::find(&schema, key) != nullptr; });
}

Decimal decimal_of(const Value& number, const char* key, const std::string& where) {
    auto decimal = parse_decimal(number.text);
    if (!decimal)
        fail(Status::unsupported, "{}: {} {} has more than {} digits", where, key, number.text, k_max_digits);
    return std::move(*decimal);
}

std::optional<Bound> bound_of(const Value& flat, const char* key, bool is_included,
                              const std::string& where) {
    const Value* value = json::find(&flat, key);
    if (value == nullptr) return std::nullopt;
    return Bound{decimal_of(*value, key, where), is_included};
}

std::optional<Bound> tighter(std::optional<Bound> a, std::optional<Bound> b, bool is_lower) {
    if (!a || !b) return a ? a : b;
    const int compared = compare(a->value, b->value);
    if (compared == 0) return a->is_included ? b : a;
    return (compared > 0) == is_lower ? a : b;
}

// Returns the values of one kind that a flat schema excludes.
std::vector<const Value*> excluded(const Value& flat, Value::Kind kind) {
    std::vector<const Value*> values;
    if (const Value* excluded = json::find(&flat, "!values"))
        for (const Value& value : excluded->items)
            if (value.kind == kind) values.push_back(&value);
    return values;
}

TextAutomaton either(const TextAutomaton& a, const TextAutomaton& b, const std::string& where) {
    return other_texts(both(other_texts(a), other_texts(b), where));
}

// Returns the spelling of numbers, whose characters are ASCII: digits, signs and points.
Spelling ascii_spelling(Grammar& grammar) {
    return [&grammar](const CodePoints& set) { return utf8(grammar, set); };
}

}  // namespace

int64_t count_in(const Value& flat, const char* key, int64_t otherwise, const std::string& where,
                 int64_t limit) {
    const Value* value = json::find(&flat, key);
    if (value == nullptr) return otherwise;
    const int64_t count = count_of(*value).value_or(otherwise);
    if (count > limit)
        fail(Status::unsupported, "{}: '{}' {}; at most {} can be kept", where, key, value->text, limit);
    return count;
}

Part JsonSchema::value(const Value& schema, const std::string& where) {
    return rules_.call(grammar_, schema, where);
}

void JsonSchema::finish() {
    rules_.define_all(grammar_, [&](const Value& schema, const std::string& where) {
        std::vector<Part> parts;
        for (const Value& alternative : document_.alternatives(schema, where))
            parts.push_back(flat(alternative, where));
        return grammar_.choice(std::move(parts));
    });
}

bool allows_any(const Value& flat) {
    return std::ranges::all_of(flat.keys, [](const std::string& key) { return key == "seen"; });
}

Part JsonSchema::flat(const Value& flat, const std::string& where) {
    std::vector<Part> parts;
    if (const Value* values = json::find(&flat, "enum")) {
        for (const Value& value : values->items) parts.push_back(text_.literal(value));
        return grammar_.choice(std::move(parts));
    }
    if (allows_any(flat)) return text_.value();
    for (const std::string& type : types_of(flat)) parts.push_back(of_type(type, flat, where));
    return grammar_.choice(std::move(parts));
}

// A schema with `properties` alone is meant for objects, though the standard accepts values of all other types too.
std::vector<std::string> JsonSchema::types_of(const Value& flat) {
    std::vector<std::string> types;
    if (const Value* type = json::find(&flat, "type")) {
        if (type->is_string()) return {type->text};
        for (const Value& each : type->items) types.push_back(each.text);
        return types;
    }
    if (has_any(flat, {"properties", "required", "additionalProperties", "propertyNames", "patternProperties",
                       "minProperties", "maxProperties"}))
        types.emplace_back("object");
    if (has_any(flat, {"items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems"}))
        types.emplace_back("array");
    if (has_any(flat, {"minLength", "maxLength", "patterns"})) types.emplace_back("string");
    if (has_any(flat, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "divisors"}))
        types.emplace_back("number");
    if (types.empty()) types = {"object", "array", "string", "number", "boolean", "null"};
    return types;
}

Part JsonSchema::of_type(std::string_view type, const Value& flat, const std::string& where) {
    if (type == "null") return excluded(flat, Value::Kind::null).empty() ? text_.null() : grammar_.nothing();
    if (type == "boolean") {
        std::vector<Part> parts;
        for (const bool value : {true, false}) {
            const auto others = excluded(flat, Value::Kind::boolean);
            const bool is_out =
                std::ranges::any_of(others, [&](const Value* other) { return other->boolean == value; });
            if (!is_out) parts.push_back(grammar_.text(value ? "true" : "false"));
        }
        return grammar_.choice(std::move(parts));
    }
    if (type == "string") return string(flat, where);
    if (type == "array") return array(flat, where);
    if (type == "object") return object(flat, where);
    return number(flat, type == "integer", where);
}

Part JsonSchema::number(const Value& flat, bool is_integer, const std::string& where) {
    const auto low = tighter(bound_of(flat, "minimum", true, where),
                             bound_of(flat, "exclusiveMinimum", false, where), true);
    const auto high = tighter(bound_of(flat, "maximum", true, where),
                              bound_of(flat, "exclusiveMaximum", false, where), false);
    const auto others = excluded(flat, Value::Kind::number);
    const bool is_plain = !has_any(flat, {"divisors", "!divisors", "!integer"}) && others.empty();
    if (is_plain && !low && !high) return is_integer ? text_.integer() : text_.number();

    const RegexNode tree = is_integer ? integer_between(low, high)
                           : is_plain ? number_between(low, high)
                                      : plain_number_between(low, high);
    TextAutomaton texts = automaton_of(tree, Match::whole, where);
    document_.work().count_states(texts.n_states(), where);
    const auto keep = [&](const TextAutomaton& other) {
        texts = both(texts, other, where);
        document_.work().count_states(texts.n_states(), where);
    };
    for (const char* key : {"divisors", "!divisors"}) {
        const Value* divisors = json::find(&flat, key);
        for (size_t i = 0; divisors != nullptr && i < divisors->items.size(); ++i) {
            const auto multiples = multiples_of(decimal_of(divisors->items[i], "multipleOf", where));
            if (!multiples)
                fail(Status::unsupported, "{}: 'multipleOf' {} cannot be enforced", where,
                     divisors->items[i].text);
            keep(key[0] == '!' ? other_texts(*multiples) : *multiples);
        }
    }
    if (json::find(&flat, "!integer") != nullptr)
        keep(other_texts(multiples_of(parse_decimal("1").value()).value()));
    for (const Value* other : others) keep(other_texts(texts_of_value(decimal_of(*other, "not", where))));
    return part_of(grammar_, texts, ascii_spelling(grammar_));
}

Part JsonSchema::string(const Value& flat, const std::string& where) {
    // Nothing for a format that is not known, too: its length is kept all the same.
    if (const auto texts = string_texts(flat, where))
        return text_.quoted(part_of_length(*texts, flat, text_.spelling(), where));
    const int64_t least = count_in(flat, "minLength", 0, where, k_max_counted);
    const int64_t most = count_in(flat, "maxLength", -1, where, k_max_counted);
    if (least == 0 && most < 0) return text_.string();
    const Grammar::Graph any{.edges = {{0, 0, text_.any_character()}}, .accepts = {1}};
    return text_.quoted(grammar_.counted(any, least, most, where));
}

Part JsonSchema::part_of_length(const TextAutomaton& texts, const Value& flat, const Spelling& spelling,
                                const std::string& where) {
    const int64_t least = count_in(flat, "minLength", 0, where, k_max_counted);
    const int64_t most = count_in(flat, "maxLength", -1, where, k_max_counted);
    Grammar::Graph graph = graph_of(texts, spelling);
    if (least == 0 && most < 0) return grammar_.graph(std::move(graph));
    return grammar_.counted(std::move(graph), least, most, where);
}

std::optional<TextAutomaton> JsonSchema::string_texts(const Value& flat, const std::string& where) {
    std::optional<TextAutomaton> texts;
    const auto keep = [&](const TextAutomaton& other) {
        texts = texts ? both(*texts, other, where) : other;
        document_.work().count_states(texts->n_states(), where);
    };
    SchemaCheck& check = document_.check();
    for (const char* key : {"patterns", "!patterns", "formats", "!formats"}) {
        const Value* list = json::find(&flat, key);
        for (size_t i = 0; list != nullptr && i < list->items.size(); ++i) {
            const std::string& text = list->items[i].text;
            const bool is_pattern = std::string_view(key).ends_with("patterns");
            const TextAutomaton* of = is_pattern ? &check.pattern(text, where) : automaton_of_format(text);
            const bool is_excluded = key[0] == '!';
            if (of != nullptr) keep(is_excluded ? other_texts(*of) : *of);
            // A format that is only an annotation fits every text, so excluding it leaves no text.
            if (of == nullptr && is_excluded) keep(TextAutomaton{.classes = {}, .next = {}, .accepts = {0}});
        }
    }
    std::vector<std::string> others;
    for (const Value* other : excluded(flat, Value::Kind::string)) others.push_back(other->text);
    if (!others.empty()) keep(other_texts(listed_texts(others)));
    return texts;
}

TextAutomaton JsonSchema::texts_with_length(const Value& flat, const std::string& where) {
    const int64_t least = count_in(flat, "minLength", 0, where, k_max_counted);
    const int64_t most = count_in(flat, "maxLength", -1, where, k_max_counted);
    const auto texts = string_texts(flat, where);
    if (most >= 0 && most < least) return {.classes = {}, .next = {}, .accepts = {0}};
    if (std::max(least, most) > k_max_repeats)
        fail(Status::unsupported, "{}: a length of {}; at most {} can be kept here", where,
             std::max(least, most), k_max_repeats);
    const TextAutomaton lengths = texts_of_length(least, most);
    if (!texts) return lengths;
    TextAutomaton all = both(*texts, lengths, where);
    document_.work().count_states(all.n_states(), where);
    return all;
}

TextAutomaton JsonSchema::strings_of(const Value& schema, const std::string& where) {
    TextAutomaton all{.classes = {}, .next = {}, .accepts = {0}};
    std::vector<std::string> listed;
    for (const Value& alternative : document_.alternatives(schema, where)) {
        if (const Value* values = json::find(&alternative, "enum")) {
            for (const Value& value : values->items)
                if (value.is_string()) listed.push_back(value.text);
            continue;
        }
        const Value* type = json::find(&alternative, "type");
        if (type != nullptr && !is_of_type(string_value(""), *type)) continue;
        all = either(all, texts_with_length(alternative, where), where);
    }
    return listed.empty() ? all : either(all, listed_texts(listed), where);
}

Value without_excluded(const Value& flat, Value::Kind kind, const std::string& where) {
    const char* const count = kind == Value::Kind::array ? "minItems" : "minProperties";
    Value own = flat;
    for (const Value* other : excluded(flat, kind)) {
        if (!other->items.empty())
            fail(Status::unsupported, "{}: 'not' {} cannot be enforced", where, json::to_text(*other));
        if (count_in(own, count, 0, where) == 0) set(own, count, number_value(1));
    }
    return own;
}

Part JsonSchema::array(const Value& flat, const std::string& where) {
    return json_array(*this, text_, without_excluded(flat, Value::Kind::array, where), where);
}

Part JsonSchema::object(const Value& flat, const std::string& where) {
    const Value own = without_excluded(flat, Value::Kind::object, where);
    const MemberWriting writing = {
        .named =
            [&](const std::string& name, const Value& schema) {
                return text_.member(text_.literal(std::string_view(name)),
                                    value(schema, format_text("{}/properties/{}", where, name)));
            },
        .further =
            [&](const TextAutomaton* names, const Value& schema, const std::string& place) {
                const Part key = names == nullptr ? text_.string()
                                                  : text_.quoted(part_of(grammar_, *names, text_.spelling()));
                return text_.member(key, value(schema, place));
            },
        .separator = text_.comma(),
        .empty_properties_close = false,
    };
    return text_.list('{', member_list(*this, grammar_, own, where, writing), '}');
}

Grammar grammar_of_schema(const Value& schema) {
    Grammar grammar;
    JsonText text(grammar);
    SchemaWork work;
    JsonSchema writer(text, schema, work);
    grammar.start_with(writer.value(writer.document().root(), "schema"));
    writer.finish();
    return grammar;
}

}  // namespace minim::constraint
