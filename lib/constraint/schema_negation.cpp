// SPDX-License-Identifier: Apache-2.0
// Negates a schema keyword by keyword: a value that does not fit the schema fails one of its keywords.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "constraint/flat_schema.h"
#include "constraint/schema_document.h"
#include "constraint/schema_values.h"

namespace minim::constraint {
namespace {

using json::Value;

Value not_schema(const Value& schema) {
    if (schema.is_boolean()) return boolean_schema(!schema.boolean);
    return one_member("not", schema);
}

Value of_type(std::string_view type, std::string_view key, Value value) {
    Value schema = one_member("type", string_value(type));
    set(schema, key, std::move(value));
    return schema;
}

int64_t one_more(const Value& count) {
    return std::min(count_of(count).value_or(0), INT64_MAX - 1) + 1;
}

// Refuses keywords that are false only if some member or item breaks them: which one is not known here, so their negation cannot be
// written as a schema.
void require_negatable(const Value& schema, const std::string& where) {
    for (const char* key :
         {"additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties",
          "unevaluatedItems", "additionalItems", "uniqueItems", "$dynamicRef", "$recursiveRef"}) {
        const Value* value = find_given(schema, key);
        if (value == nullptr || (value->is_object() && value->keys.empty())) continue;
        const bool restricts_nothing =
            value->is_boolean() && value->boolean == (std::string_view(key) != "uniqueItems");
        if (!restricts_nothing)
            fail(Status::unsupported, "{}: '{}' in a schema that must not fit cannot be enforced", where,
                 key);
    }
    for (const char* key : {"exclusiveMinimum", "exclusiveMaximum"}) {
        const Value* value = find_given(schema, key);
        if (value != nullptr && value->is_boolean())
            fail(Status::unsupported, "{}: '{}' in a schema that must not fit cannot be enforced", where,
                 key);
    }
    const Value* items = find_given(schema, "items");
    if (items != nullptr && !items->is_array() && find_given(schema, "prefixItems") != nullptr)
        fail(Status::unsupported,
             "{}: 'items' beside 'prefixItems' in a schema that must not fit cannot be enforced", where);
}

// Each function adds the flat schemas of values that fail one of its keywords.
using Flats = std::vector<Value>;

void add_of_any_type(const Value& schema, Flats& flats) {
    if (const Value* type = find_given(schema, "type")) {
        bool has_fractions = false;
        Value others = other_types(*type, has_fractions);
        if (!others.items.empty()) flats.push_back(one_member("type", std::move(others)));
        if (has_fractions) flats.push_back(of_type("number", "!integer", boolean_schema(true)));
    }
    if (const Value* constant = json::find(&schema, "const"))
        flats.push_back(one_member("!values", array_value({*constant})));
    if (const Value* listed = find_given(schema, "enum")) flats.push_back(one_member("!values", *listed));
}

void add_counts(const Value& schema, const char* type, const char* least, const char* most, Flats& flats) {
    if (const Value* value = find_given(schema, least); value != nullptr && count_of(*value).value_or(0) > 0)
        flats.push_back(of_type(type, most, number_value(*count_of(*value) - 1)));
    if (const Value* value = find_given(schema, most))
        flats.push_back(of_type(type, least, number_value(one_more(*value))));
}

void add_scalars(const Value& schema, Flats& flats) {
    struct Opposite {
        const char* key;
        const char* type;
        const char* opposite;
        bool is_list;
    };
    for (const Opposite& each : {Opposite{"pattern", "string", "!patterns", true},
                                 {"format", "string", "!formats", true},
                                 {"multipleOf", "number", "!divisors", true},
                                 {"minimum", "number", "exclusiveMaximum", false},
                                 {"maximum", "number", "exclusiveMinimum", false},
                                 {"exclusiveMinimum", "number", "maximum", false},
                                 {"exclusiveMaximum", "number", "minimum", false}}) {
        if (const Value* value = find_given(schema, each.key))
            flats.push_back(of_type(each.type, each.opposite, each.is_list ? array_value({*value}) : *value));
    }
}

void add_members(const Value& schema, Flats& flats) {
    const Value* properties = find_given(schema, "properties");
    for (size_t i = 0; properties != nullptr && i < properties->keys.size(); ++i) {
        const std::string& name = properties->keys[i];
        Value flat = of_type("object", "required", array_value({string_value(name)}));
        set(flat, "properties", one_member(name, not_schema(properties->items[i])));
        flats.push_back(std::move(flat));
    }
    if (const Value* required = find_given(schema, "required"))
        for (const Value& name : required->items)
            flats.push_back(of_type("object", "properties", one_member(name.text, boolean_schema(false))));
}

Value containing(const Value& each, int64_t least, std::optional<int64_t> most) {
    Value counted = one_member("schema", each);
    set(counted, "least", number_value(least));
    if (most) set(counted, "most", number_value(*most));
    return of_type("array", "contains", array_value({std::move(counted)}));
}

void add_items(const Value& schema, Flats& flats) {
    const Value* prefix = find_given(schema, "prefixItems");
    const Value* items = find_given(schema, "items");
    if (items != nullptr && items->is_array()) prefix = std::exchange(items, nullptr);
    for (size_t i = 0; prefix != nullptr && i < prefix->items.size(); ++i) {
        Value places = array_value(std::vector<Value>(i, boolean_schema(true)));
        places.items.push_back(not_schema(prefix->items[i]));
        Value flat = of_type("array", "prefixItems", std::move(places));
        set(flat, "items", boolean_schema(true));
        set(flat, "minItems", number_value(static_cast<int64_t>(i) + 1));
        flats.push_back(std::move(flat));
    }
    if (items != nullptr) flats.push_back(containing(not_schema(*items), 1, std::nullopt));
    const Value* contained = find_given(schema, "contains");
    if (contained == nullptr) return;
    const Value* least = find_given(schema, "minContains");
    const Value* most = find_given(schema, "maxContains");
    const int64_t n = least != nullptr ? count_of(*least).value_or(1) : 1;
    if (n > 0) flats.push_back(containing(*contained, 0, n - 1));
    if (most != nullptr) flats.push_back(containing(*contained, one_more(*most), std::nullopt));
}

}  // namespace

SchemaDocument::Alternatives SchemaDocument::negated(const Value& schema, const std::string& where,
                                                     int depth) {
    if (schema.is_boolean()) return expand(boolean_schema(!schema.boolean), where, depth);
    if (!schema.is_object())
        fail(Status::invalid, "{}: a schema is an object or a boolean, not {}", where, json::to_text(schema));
    require_depth(depth, where);
    work_.count_members(1 + schema.keys.size(), where);
    check_keywords(schema, where);
    require_negatable(schema, where);
    Alternatives all = negated_combinations(schema, where, depth);
    add_of_any_type(schema, all);
    add_counts(schema, "string", "minLength", "maxLength", all);
    add_counts(schema, "array", "minItems", "maxItems", all);
    add_counts(schema, "object", "minProperties", "maxProperties", all);
    add_scalars(schema, all);
    add_members(schema, all);
    add_items(schema, all);
    // A schema that a value does not fit has seen none of its members or items.
    for (Value& flat : all) erase(flat, "seen");
    return all;
}

SchemaDocument::Alternatives SchemaDocument::negated_combinations(const Value& schema,
                                                                  const std::string& where, int depth) {
    Alternatives all;
    const auto add = [&](const Alternatives& more) { all.insert(all.end(), more.begin(), more.end()); };
    const auto none_of = [&](const Value& members) {
        Alternatives none = {object_value()};
        for (const Value& each : members.items)
            none = merge_each(none, negated(each, where, depth + 1), where);
        return none;
    };
    if (const Value* reference = find_given(schema, "$ref"))
        add(negated(target_of(root_, *reference, where), where, depth + 1));
    if (const Value* members = find_given(schema, "allOf"))
        for (const Value& each : members->items) add(negated(each, where, depth + 1));
    if (const Value* members = find_given(schema, "anyOf")) add(none_of(*members));
    if (const Value* members = find_given(schema, "oneOf")) {
        add(none_of(*members));
        for (size_t i = 0; i < members->items.size(); ++i)
            for (size_t j = 0; j < i; ++j)
                add(expand_all({members->items[i], members->items[j]}, where, depth));
    }
    if (const Value* other = find_given(schema, "not")) add(expand(*other, where, depth + 1));
    if (const Value* condition = find_given(schema, "if")) {
        if (const Value* next = find_given(schema, "then"))
            add(expand_all({*condition, not_schema(*next)}, where, depth));
        if (const Value* next = find_given(schema, "else"))
            add(expand_all({not_schema(*condition), not_schema(*next)}, where, depth));
    }
    for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
        const Value* dependent = find_given(schema, key);
        for (size_t i = 0; dependent != nullptr && i < dependent->keys.size(); ++i) {
            Value has_name = of_type("object", "required", array_value({string_value(dependent->keys[i])}));
            const Value& wanted = dependent->items[i];
            add(expand_all({std::move(has_name),
                            not_schema(wanted.is_array() ? one_member("required", wanted) : wanted)},
                           where, depth));
        }
    }
    return all;
}

}  // namespace minim::constraint
