// SPDX-License-Identifier: Apache-2.0
#include "constraint/schema_document.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "constraint/flat_schema.h"
#include "constraint/schema_references.h"
#include "constraint/schema_values.h"

namespace minim::constraint {
namespace {

using json::Value;

constexpr int k_max_nested = 100;
constexpr size_t k_max_alternatives = 1000;
constexpr size_t k_max_apart = 48;  // alternatives that one member of a oneOf becomes
constexpr size_t k_max_exclusive =
    8;  // members of a oneOf that exclude each other by more than their types and constants
constexpr size_t k_max_together = 4;  // members of one anyOf that are put together in every combination

bool holds_unevaluated(const Value& value) {
    for (size_t i = 0; i < value.keys.size(); ++i)
        if (value.keys[i].starts_with("unevaluated")) return true;
    return std::ranges::any_of(value.items, holds_unevaluated);
}

// Returns the number of keywords and properties of a flat schema.
size_t member_count(const Value& schema) {
    const Value* properties = json::find(&schema, "properties");
    return schema.keys.size() + (properties == nullptr ? 0 : properties->keys.size());
}

// Returns the value or values that a schema lists; nullptr if it lists none.
const Value* listed_values(const Value* schema) {
    if (schema == nullptr || !schema->is_object()) return nullptr;
    if (const Value* constant = json::find(schema, "const")) return constant;
    return find_given(*schema, "enum");
}

bool requires_name(const Value& flat, const std::string& name) {
    const Value* required = json::find(&flat, "required");
    return required != nullptr &&
           std::ranges::any_of(required->items, [&](const Value& other) { return other.text == name; });
}

}  // namespace

SchemaDocument::SchemaDocument(const Value& root, SchemaWork& work)
    : root_(with_local_references(root)),
      work_(work),
      check_(root_, work),
      tracks_seen_(holds_unevaluated(root)) {}

std::vector<Value> SchemaDocument::alternatives(const Value& schema, const std::string& where) {
    Alternatives results = expand(schema, where, 0);
    for (Value& flat : results) {
        const Value* listed = json::find(&flat, "enum");
        if (listed == nullptr) continue;
        // The values are those of the schema's own `enum`, so this list need not be searched for each value.
        Value rest = schema;
        if (rest.is_object() && json::find(&rest, "const") == nullptr) erase(rest, "enum");
        Value fitting = array_value();
        for (const Value& value : listed->items)
            if (check_.fits(value, rest, where)) fitting.items.push_back(value);
        set(flat, "enum", std::move(fitting));
    }
    return results;
}

void SchemaDocument::require_depth(int depth, const std::string& where) const {
    if (depth > k_max_nested) fail(Status::invalid, "{}: the schema refers to itself without end", where);
}

SchemaDocument::Alternatives SchemaDocument::merge_each(const Alternatives& some, const Alternatives& others,
                                                        const std::string& where) {
    if (!others.empty() && some.size() > k_max_alternatives / others.size())
        fail(Status::unsupported, "{}: more than {} alternatives", where, k_max_alternatives);
    Alternatives both;
    for (const Value& a : some) {
        for (const Value& b : others) {
            work_.count_members(member_count(a) + member_count(b), where);
            if (auto flat = merged(a, b, check_, where)) both.push_back(std::move(*flat));
        }
    }
    return both;
}

SchemaDocument::Alternatives SchemaDocument::expand(const Value& schema, const std::string& where,
                                                    int depth) {
    if (schema.is_boolean()) {
        if (!schema.boolean) return {};
        return {flat_keywords(object_value(), where, tracks_seen_)};
    }
    if (!schema.is_object())
        fail(Status::invalid, "{}: a schema is an object or a boolean, not {}", where, json::to_text(schema));
    require_depth(depth, where);
    work_.count_members(1 + schema.keys.size(), where);
    check_keywords(schema, where);
    // alternatives() checks listed values against the whole schema.
    if (const Value* constant = json::find(&schema, "const"))
        return {one_member("enum", array_value({*constant}))};
    if (const Value* listed = find_given(schema, "enum")) return {one_member("enum", *listed)};

    Alternatives results = {flat_keywords(schema, where, tracks_seen_)};
    const auto restrict_to = [&](const Alternatives& others) {
        results = merge_each(results, others, where);
    };
    if (const Value* reference = find_given(schema, "$ref"))
        restrict_to(expand(target_of(root_, *reference, where), where, depth + 1));
    if (const Value* members = find_given(schema, "allOf"))
        for (const Value& each : members->items) restrict_to(expand(each, where, depth + 1));
    if (const Value* members = find_given(schema, "anyOf")) restrict_to(any_of(*members, where, depth));
    if (const Value* members = find_given(schema, "oneOf")) restrict_to(one_of(*members, where, depth));
    if (find_given(schema, "if") != nullptr &&
        (tracks_seen_ || find_given(schema, "then") != nullptr || find_given(schema, "else") != nullptr))
        restrict_to(conditional(schema, where, depth));
    if (const Value* other = find_given(schema, "not"))
        restrict_to(negated(*other, where + "/not", depth + 1));
    add_dependent(schema, results, where, depth);
    const Value* rest_of_names = find_given(schema, "unevaluatedProperties");
    const Value* rest_of_items = find_given(schema, "unevaluatedItems");
    for (Value& flat : results) {
        if (json::find(&flat, "enum") != nullptr) continue;
        if (rest_of_names != nullptr) close_properties(flat, *rest_of_names);
        if (rest_of_items != nullptr) close_items(flat, *rest_of_items);
    }
    return results;
}

SchemaDocument::Alternatives SchemaDocument::expand_all(const std::vector<Value>& schemas,
                                                        const std::string& where, int depth) {
    Alternatives results = {object_value()};
    for (const Value& schema : schemas)
        results = merge_each(results, expand(schema, where, depth + 1), where);
    return results;
}

// Returns the alternatives of anyOf. If seen members and items are tracked, each combination is expanded: several
// together have seen more than one alone.
SchemaDocument::Alternatives SchemaDocument::any_of(const Value& members, const std::string& where,
                                                    int depth) {
    const size_t n = members.items.size();
    if (!tracks_seen_ || n > k_max_together) {
        Alternatives all;
        for (const Value& each : members.items) {
            Alternatives unpacked = expand(each, where, depth + 1);
            all.insert(all.end(), std::make_move_iterator(unpacked.begin()),
                       std::make_move_iterator(unpacked.end()));
        }
        return all;
    }
    Alternatives all;
    for (size_t chosen = 1; chosen < size_t{1} << n; ++chosen) {
        std::vector<Value> together;
        for (size_t i = 0; i < n; ++i)
            if ((chosen >> i & 1) != 0) together.push_back(members.items[i]);
        Alternatives unpacked = expand_all(together, where, depth);
        all.insert(all.end(), std::make_move_iterator(unpacked.begin()),
                   std::make_move_iterator(unpacked.end()));
    }
    return all;
}

// Returns the alternatives of oneOf: each member, without the values that other members accept too.
SchemaDocument::Alternatives SchemaDocument::one_of(const Value& members, const std::string& where,
                                                    int depth) {
    const size_t n = members.items.size();
    std::vector<Alternatives> unpacked;
    for (const Value& each : members.items) unpacked.push_back(expand(each, where, depth + 1));
    Alternatives all;
    for (size_t i = 0; i < n; ++i) {
        // alternatives() checks listed values against the whole schema.
        Alternatives only = unpacked[i];
        const auto unlisted_begin = std::partition(
            only.begin(), only.end(), [](const Value& flat) { return json::find(&flat, "enum") != nullptr; });
        all.insert(all.end(), only.begin(), unlisted_begin);
        only.erase(only.begin(), unlisted_begin);
        const Alternatives unlisted = only;
        for (size_t j = 0; j < n && !only.empty(); ++j) {
            const bool is_apart = std::ranges::all_of(unlisted, [&](const Value& a) {
                return std::ranges::all_of(unpacked[j],
                                           [&](const Value& b) { return are_disjoint(a, b, where, depth); });
            });
            if (i == j || is_apart || n > k_max_exclusive) continue;
            try {
                const Alternatives others = negated(members.items[j], where, depth + 1);
                if (only.size() * others.size() <= k_max_apart) only = merge_each(only, others, where);
            } catch (const Error& error) {
                if (error.status() != Status::unsupported) throw;
                // The overlap with this member is then allowed, as in anyOf.
            }
        }
        all.insert(all.end(), std::make_move_iterator(only.begin()), std::make_move_iterator(only.end()));
    }
    return all;
}

bool SchemaDocument::are_disjoint(const Value& a, const Value& b, const std::string& where, int depth) {
    if (json::find(&a, "enum") != nullptr || json::find(&b, "enum") != nullptr) {
        const Value* values_a = json::find(&a, "enum");
        const Value* values_b = json::find(&b, "enum");
        if (values_a == nullptr || values_b == nullptr) return false;
        return !merged(a, b, check_, where).has_value();
    }
    const Value* type_a = json::find(&a, "type");
    const Value* type_b = json::find(&b, "type");
    if (type_a == nullptr || type_b == nullptr) return false;
    if (!merged(one_member("type", *type_a), one_member("type", *type_b), check_, where)) return true;
    const auto is_object = [](const Value& type) {
        return type.is_string("object") || (type.items.size() == 1 && type.items[0].is_string("object"));
    };
    if (!is_object(*type_a) || !is_object(*type_b)) return false;
    const Value* properties_a = json::find(&a, "properties");
    const Value* properties_b = json::find(&b, "properties");
    for (size_t i = 0; properties_a != nullptr && i < properties_a->keys.size(); ++i) {
        const std::string& name = properties_a->keys[i];
        const Value* theirs = json::find(properties_b, name);
        if (theirs == nullptr || !requires_name(a, name) || !requires_name(b, name)) continue;
        if (listed_values(&properties_a->items[i]) == nullptr || listed_values(theirs) == nullptr) continue;
        require_depth(depth, where);
        const Alternatives both = merge_each(expand(properties_a->items[i], where, depth + 1),
                                             expand(*theirs, where, depth + 1), where);
        if (both.empty()) return true;
    }
    return false;
}

SchemaDocument::Alternatives SchemaDocument::conditional(const Value& schema, const std::string& where,
                                                         int depth) {
    const Value& condition = *find_given(schema, "if");
    const auto branch = [&](const char* key) {
        const Value* next = find_given(schema, key);
        return next != nullptr ? *next : boolean_schema(true);
    };
    Alternatives all = expand_all({condition, branch("then")}, where, depth);
    const Alternatives otherwise = merge_each(negated(condition, where + "/if", depth + 1),
                                              expand(branch("else"), where, depth + 1), where);
    all.insert(all.end(), otherwise.begin(), otherwise.end());
    return all;
}

// Adds the conditions that depend on a name: the name is missing, or its conditions are met.
void SchemaDocument::add_dependent(const Value& schema, Alternatives& results, const std::string& where,
                                   int depth) {
    for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
        const Value* dependent = find_given(schema, key);
        for (size_t i = 0; dependent != nullptr && i < dependent->keys.size(); ++i) {
            const std::string& name = dependent->keys[i];
            const Value& wanted = dependent->items[i];
            if (wanted.is_array() && wanted.items.empty()) continue;
            Alternatives either = {one_member("properties", one_member(name, boolean_schema(false)))};
            // Members that no other keyword names come in this order: the name after those that it depends on.
            Value has_name = one_member("required", array_value({string_value(name)}));
            Value then = wanted.is_array() ? one_member("required", wanted) : wanted;
            const Alternatives with =
                expand_all({std::move(then), std::move(has_name)}, where + "/" + key, depth);
            either.insert(either.end(), with.begin(), with.end());
            results = merge_each(results, either, where);
        }
    }
}

}  // namespace minim::constraint
