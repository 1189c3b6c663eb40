// SPDX-License-Identifier: Apache-2.0
#include "constraint/schema_check.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/format_text.h"
#include "base/utf8.h"
#include "constraint/decimal.h"
#include "constraint/number_texts.h"
#include "constraint/regex.h"
#include "constraint/schema_values.h"
#include "constraint/string_formats.h"

namespace minim::constraint {
namespace {

using json::Value;

constexpr int k_max_nested = 200;

// Returns the unescaped token of a JSON pointer, or of a URI fragment with a JSON pointer.
std::string unescaped(std::string_view token) {
    std::string text;
    for (size_t i = 0; i < token.size(); ++i) {
        const auto digit = [&](size_t at) {
            const char c = at < token.size() ? token[at] : '\0';
            if (c >= '0' && c <= '9') return c - '0';
            const char lower = static_cast<char>(c | 0x20);
            return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
        };
        if (token[i] == '%' && digit(i + 1) >= 0 && digit(i + 2) >= 0) {
            text += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
            i += 2;
        } else if (token.substr(i, 2) == "~0" || token.substr(i, 2) == "~1") {
            text += token[i + 1] == '0' ? '~' : '/';
            ++i;
        } else {
            text += token[i];
        }
    }
    return text;
}

const Value* member(const Value& parent, const std::string& name) {
    if (parent.is_object()) return json::find(&parent, name);
    if (!parent.is_array() || name.empty() || name.size() > 6) return nullptr;
    if (name.find_first_not_of("0123456789") != std::string::npos) return nullptr;
    const auto index = static_cast<size_t>(std::stoi(name));
    return index < parent.items.size() ? &parent.items[index] : nullptr;
}

int64_t length_of(std::string_view text) {
    int64_t n = 0;
    for (; !text.empty(); text.remove_prefix(next_utf8(text).length)) ++n;
    return n;
}

Decimal decimal_of(const Value& number, const std::string& where) {
    auto decimal = parse_decimal(number.text);
    if (!decimal)
        fail(Status::unsupported, "{}: {} has more than {} digits", where, number.text, k_max_digits);
    return *decimal;
}

bool is_limit(std::string_view key) {
    constexpr auto k_limits = std::to_array<std::string_view>(
        {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"});
    return std::ranges::find(k_limits, key) != k_limits.end();
}

void add_seen(std::vector<bool>& seen, const std::vector<bool>& more) {
    for (size_t i = 0; i < seen.size(); ++i)
        if (more[i]) seen[i] = true;
}

}  // namespace

const Value& target_of(const Value& root, const Value& reference, const std::string& where) {
    if (!reference.is_string() || !reference.text.starts_with('#')) {
        fail(Status::unsupported, "{}: $ref {} is not a place in the schema itself", where,
             json::to_text(reference));
    }
    const Value* at = &root;
    const std::string_view pointer = std::string_view(reference.text).substr(1);
    for (size_t begin = 0; begin < pointer.size() && at != nullptr;) {
        if (pointer[begin] != '/')
            fail(Status::unsupported, "{}: $ref '{}' is no $anchor of the schema", where, reference.text);
        const size_t end = std::min(pointer.find('/', begin + 1), pointer.size());
        at = member(*at, unescaped(pointer.substr(begin + 1, end - begin - 1)));
        begin = end;
    }
    if (at == nullptr) fail(Status::invalid, "{}: $ref '{}' is not in the schema", where, reference.text);
    return *at;
}

bool is_of_type(const Value& value, const Value& type) {
    if (type.is_array())
        return std::ranges::any_of(type.items, [&](const Value& each) { return is_of_type(value, each); });
    const std::string& name = type.text;
    switch (value.kind) {
        case Value::Kind::null:
            return name == "null";
        case Value::Kind::boolean:
            return name == "boolean";
        case Value::Kind::number:
            return name == "number" || (name == "integer" && is_whole(value));
        case Value::Kind::string:
            return name == "string";
        case Value::Kind::array:
            return name == "array";
        case Value::Kind::object:
            return name == "object";
    }
    return false;
}

const TextAutomaton& SchemaCheck::pattern(const std::string& text, const std::string& where) {
    const auto known = patterns_.find(text);
    if (known != patterns_.end()) return known->second;
    TextAutomaton automaton = automaton_of(text, Match::anywhere, where);
    work_.count_states(automaton.n_states(), where);
    return patterns_.emplace(text, std::move(automaton)).first->second;
}

bool SchemaCheck::fits_alone(const Value& value, const Value& schema, const std::string& where, int depth) {
    Seen seen(value.items.size(), false);
    return fits(value, schema, where, seen, depth);
}

bool SchemaCheck::fits(const Value& value, const Value& schema, const std::string& where, Seen& seen,
                       int depth) {
    if (schema.is_boolean()) return schema.boolean;
    if (!schema.is_object())
        fail(Status::invalid, "{}: a schema is an object or a boolean, not {}", where, json::to_text(schema));
    if (depth > k_max_nested) fail(Status::invalid, "{}: the schema refers to itself without end", where);
    work_.count_checked(1 + schema.keys.size(), where);
    for (size_t i = 0; i < schema.keys.size(); ++i) {
        if (schema.items[i].is_null() && schema.keys[i] != "const") continue;
        if (!fits_keyword(value, schema.keys[i], schema.items[i], where)) return false;
    }
    if (value.is_object() && !fits_object(value, schema, where, seen, depth)) return false;
    if (value.is_array() && !fits_array(value, schema, where, seen, depth)) return false;
    if (!fits_combinations(value, schema, where, seen, depth)) return false;
    const Value* rest = find_given(schema, value.is_object() ? "unevaluatedProperties" : "unevaluatedItems");
    if (rest == nullptr || (!value.is_object() && !value.is_array())) return true;
    for (size_t i = 0; i < value.items.size(); ++i) {
        if (!seen[i] && !fits_alone(value.items[i], *rest, where, depth + 1)) return false;
        seen[i] = true;
    }
    return true;
}

// Checks the keywords that need neither other keywords nor other schemas.
bool SchemaCheck::fits_keyword(const Value& value, const std::string& key, const Value& keyword,
                               const std::string& where) {
    if (key == "$dynamicRef" || key == "$recursiveRef")
        fail(Status::unsupported, "{}: '{}' cannot be enforced", where, key);
    if (key == "type") return is_of_type(value, keyword);
    if (key == "const") return are_equal(value, keyword);
    if (key == "enum")
        return std::ranges::any_of(keyword.items, [&](const Value& each) { return are_equal(value, each); });
    if (is_limit(key)) {
        const bool applies = key.ends_with("Length")  ? value.is_string()
                             : key.ends_with("Items") ? value.is_array()
                                                      : value.is_object();
        const auto limit = count_of(keyword);
        if (!applies || !limit) return true;
        const int64_t n = value.is_string() ? length_of(value.text) : std::ssize(value.items);
        return key.starts_with("min") ? n >= *limit : n <= *limit;
    }
    if (value.is_string() && key == "pattern") return pattern(keyword.text, where).has(value.text);
    if (value.is_string() && key == "format") {
        const TextAutomaton* automaton = automaton_of_format(keyword.text);
        return automaton == nullptr || automaton->has(value.text);
    }
    if (!value.is_number() || !keyword.is_number()) return true;
    if (key != "minimum" && key != "maximum" && key != "exclusiveMinimum" && key != "exclusiveMaximum" &&
        key != "multipleOf")
        return true;
    const Decimal number = decimal_of(value, where);
    const Decimal bound = decimal_of(keyword, where);
    const int compared = compare(number, bound);
    if (key == "minimum") return compared >= 0;
    if (key == "maximum") return compared <= 0;
    if (key == "exclusiveMinimum") return compared > 0;
    if (key == "exclusiveMaximum") return compared < 0;
    return bound.is_zero() || is_multiple(number, bound);
}

bool SchemaCheck::fits_combinations(const Value& value, const Value& schema, const std::string& where,
                                    Seen& seen, int depth) {
    const auto adds = [&](const Value& other) {
        Seen more(value.items.size(), false);
        if (!fits(value, other, where, more, depth + 1)) return false;
        add_seen(seen, more);
        return true;
    };
    if (const Value* reference = find_given(schema, "$ref"))
        if (!adds(target_of(root_, *reference, where))) return false;
    for (const char* key : {"allOf", "anyOf", "oneOf"}) {
        const Value* members = find_given(schema, key);
        if (members == nullptr) continue;
        const auto n = std::ranges::count_if(members->items, adds);
        const std::string_view name = key;
        if (name == "allOf" ? n != std::ssize(members->items) : name == "oneOf" ? n != 1 : n == 0)
            return false;
    }
    if (const Value* other = find_given(schema, "not"))
        if (fits_alone(value, *other, where, depth + 1)) return false;
    if (const Value* condition = find_given(schema, "if")) {
        const Value* next = find_given(schema, adds(*condition) ? "then" : "else");
        if (next != nullptr && !adds(*next)) return false;
    }
    if (!value.is_object()) return true;
    for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
        const Value* dependent = find_given(schema, key);
        for (size_t i = 0; dependent != nullptr && i < dependent->keys.size(); ++i) {
            if (json::find(&value, dependent->keys[i]) == nullptr) continue;
            const Value& wanted = dependent->items[i];
            if (!wanted.is_array()) {
                if (!adds(wanted)) return false;
            } else if (!std::ranges::all_of(wanted.items, [&](const Value& name) {
                           return json::find(&value, name.text) != nullptr;
                       })) {
                return false;
            }
        }
    }
    return true;
}

bool SchemaCheck::fits_object(const Value& value, const Value& schema, const std::string& where, Seen& seen,
                              int depth) {
    const Value* properties = find_given(schema, "properties");
    const Value* patterns = find_given(schema, "patternProperties");
    const Value* additional = find_given(schema, "additionalProperties");
    const Value* names = find_given(schema, "propertyNames");
    for (size_t i = 0; i < value.keys.size(); ++i) {
        bool is_named = false;
        const auto fits_named = [&](const Value& by) {
            is_named = true;
            return fits_alone(value.items[i], by, where, depth + 1);
        };
        if (const Value* property = json::find(properties, value.keys[i]))
            if (!fits_named(*property)) return false;
        for (size_t p = 0; patterns != nullptr && p < patterns->keys.size(); ++p) {
            if (!pattern(patterns->keys[p], where).has(value.keys[i])) continue;
            if (!fits_named(patterns->items[p])) return false;
        }
        if (!is_named && additional != nullptr && !fits_named(*additional)) return false;
        if (is_named) seen[i] = true;
        if (names != nullptr && !fits_alone(string_value(value.keys[i]), *names, where, depth + 1))
            return false;
    }
    const Value* required = find_given(schema, "required");
    return required == nullptr || std::ranges::all_of(required->items, [&](const Value& name) {
               return json::find(&value, name.text) != nullptr;
           });
}

bool SchemaCheck::fits_array(const Value& value, const Value& schema, const std::string& where, Seen& seen,
                             int depth) {
    const Value* prefix = find_given(schema, "prefixItems");
    const Value* items = find_given(schema, "items");
    if (items != nullptr && items->is_array()) {
        prefix = items;
        items = find_given(schema, "additionalItems");
    }
    const Value* contains = find_given(schema, "contains");
    int64_t n_contained = 0;
    std::set<std::string> texts;
    for (size_t i = 0; i < value.items.size(); ++i) {
        const bool is_in_prefix = prefix != nullptr && i < prefix->items.size();
        const Value* by = is_in_prefix ? &prefix->items[i] : items;
        if (by != nullptr && !fits_alone(value.items[i], *by, where, depth + 1)) return false;
        if (by != nullptr) seen[i] = true;
        if (contains != nullptr && fits_alone(value.items[i], *contains, where, depth + 1)) {
            seen[i] = true;
            ++n_contained;
        }
        texts.insert(canonical_text(value.items[i]));
    }
    const Value* unique = find_given(schema, "uniqueItems");
    if (unique != nullptr && unique->boolean && texts.size() < value.items.size()) return false;
    if (contains == nullptr) return true;
    const Value* least = find_given(schema, "minContains");
    const Value* most = find_given(schema, "maxContains");
    if (n_contained < (least != nullptr ? count_of(*least).value_or(1) : 1)) return false;
    return most == nullptr || n_contained <= count_of(*most).value_or(n_contained);
}

}  // namespace minim::constraint
