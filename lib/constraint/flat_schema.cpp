// SPDX-License-Identifier: Apache-2.0
#include "constraint/flat_schema.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "constraint/decimal.h"
#include "constraint/schema_values.h"

namespace minim::constraint {
namespace {

using json::Value;

// The maximum number of names in one schema. Work and memory for names grow with the square of their number.
constexpr size_t k_max_names = 5000;

constexpr auto k_copied = std::to_array<std::string_view>(
    {"type", "properties", "required", "additionalProperties", "propertyNames", "patternProperties",
     "minProperties", "maxProperties", "items", "prefixItems", "minItems", "maxItems", "minLength",
     "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "uniqueItems"});
// A keyword, and the list that its value becomes a member of.
constexpr auto k_listed = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"pattern", "patterns"}, {"format", "formats"}, {"multipleOf", "divisors"}});
constexpr auto k_types =
    std::to_array<std::string_view>({"object", "array", "string", "number", "integer", "boolean", "null"});

bool is_among(std::span<const std::string_view> names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

bool is_type_name(const Value& value) {
    return value.is_string() && is_among(k_types, value.text);
}

bool is_good_value(std::string_view key, const Value& value) {
    const auto all_are = [&](auto is_good) {
        return value.is_array() && std::ranges::all_of(value.items, is_good);
    };
    const auto is_name = [](const Value& name) { return name.is_string(); };
    if (key == "type") return is_type_name(value) || all_are(is_type_name);
    if (key == "required") return all_are(is_name);
    if (key == "enum" || key == "prefixItems") return value.is_array();
    if (key == "properties" || key == "patternProperties" || key == "dependentRequired" ||
        key == "dependentSchemas" || key == "dependencies")
        return value.is_object();
    if (key == "pattern" || key == "format") return value.is_string();
    if (key == "minimum" || key == "maximum") return value.is_number();
    if (key == "multipleOf") return value.is_number() && value.number > 0;
    if (key == "exclusiveMinimum" || key == "exclusiveMaximum")
        return value.is_number() || value.is_boolean();
    if (key == "uniqueItems") return value.is_boolean();
    constexpr auto k_counts =
        std::to_array<std::string_view>({"minLength", "maxLength", "minItems", "maxItems", "minProperties",
                                         "maxProperties", "minContains", "maxContains"});
    if (is_among(k_counts, key)) return count_of(value).has_value();
    return true;
}

void check_names(const Value& flat, const std::string& where) {
    for (const char* key : {"properties", "patternProperties", "required"}) {
        const Value* names = json::find(&flat, key);
        if (names != nullptr && names->items.size() > k_max_names) {
            fail(Status::unsupported, "{}: {} names in '{}'; up to {} can be enforced", where,
                 names->items.size(), key, k_max_names);
        }
    }
}

// Replaces the flags of draft 4: if exclusiveMinimum or exclusiveMaximum is `true`, the plain bound is exclusive.
void move_exclusive_flags(Value& flat) {
    for (const auto& [exclusive, plain] :
         {std::pair("exclusiveMinimum", "minimum"), std::pair("exclusiveMaximum", "maximum")}) {
        const Value* flag = json::find(&flat, exclusive);
        if (flag == nullptr || !flag->is_boolean()) continue;
        const bool is_exclusive = flag->boolean;
        erase(flat, exclusive);
        const Value* bound = json::find(&flat, plain);
        if (!is_exclusive || bound == nullptr) continue;
        Value kept = *bound;
        erase(flat, plain);
        set(flat, exclusive, std::move(kept));
    }
}

Value seen_by(const Value& flat) {
    Value seen = object_value();
    Value names = array_value();
    if (const Value* properties = json::find(&flat, "properties"))
        for (const std::string& name : properties->keys) names.items.push_back(string_value(name));
    set(seen, "names", std::move(names));
    set(seen, "all_names", boolean_schema(json::find(&flat, "additionalProperties") != nullptr));
    const Value* prefix = json::find(&flat, "prefixItems");
    set(seen, "n_items", number_value(prefix != nullptr ? std::ssize(prefix->items) : 0));
    set(seen, "all_items", boolean_schema(json::find(&flat, "items") != nullptr));
    Value contained = array_value();
    if (const Value* contains = json::find(&flat, "contains"))
        for (const Value& each : contains->items) contained.items.push_back(*json::find(&each, "schema"));
    set(seen, "items", std::move(contained));
    return seen;
}

bool is_true(const Value& object, std::string_view key) {
    const Value* flag = json::find(&object, key);
    return flag != nullptr && flag->boolean;
}

Value joined(const Value& a, const Value& b) {
    std::unordered_set<std::string> texts;
    Value all = array_value();
    for (const Value* list : {&a, &b})
        for (const Value& item : list->items)
            if (texts.insert(json::to_text(item)).second) all.items.push_back(item);
    return all;
}

Value joined_seen(const Value& a, const Value& b) {
    Value seen = object_value();
    for (const char* key : {"names", "items"})
        set(seen, key, joined(*json::find(&a, key), *json::find(&b, key)));
    for (const char* key : {"all_names", "all_items"})
        set(seen, key, boolean_schema(is_true(a, key) || is_true(b, key)));
    const auto n = [](const Value& of) { return count_of(*json::find(&of, "n_items")).value_or(0); };
    set(seen, "n_items", number_value(std::max(n(a), n(b))));
    return seen;
}

bool has_type(const Value& types, std::string_view name) {
    if (!types.is_array()) return types.is_string(name);
    return std::ranges::any_of(types.items, [&](const Value& type) { return type.is_string(name); });
}

// Returns the types that both sides allow. Each side is a name or a list of names; every integer is a number.
Value common_types(const Value& a, const Value& b) {
    const auto allows = [&](const Value& types, std::string_view name) {
        return has_type(types, name) || (name == "integer" && has_type(types, "number"));
    };
    Value common = array_value();
    for (const std::string_view name : k_types) {
        const bool is_common = allows(a, name) && allows(b, name);
        const bool is_covered = name == "integer" && has_type(common, "number");
        if (is_common && !is_covered) common.items.push_back(string_value(name));
    }
    return common;
}

Value common_values(const Value& a, const Value& b) {
    std::unordered_set<std::string> others;
    for (const Value& value : b.items) others.insert(canonical_text(value));
    Value common = array_value();
    for (const Value& value : a.items)
        if (others.contains(canonical_text(value))) common.items.push_back(value);
    return common;
}

const Value& tighter(const Value& a, const Value& b, bool is_lower_bound, const std::string& where) {
    const auto decimal_a = parse_decimal(a.text);
    const auto decimal_b = parse_decimal(b.text);
    if (!decimal_a || !decimal_b)
        fail(Status::unsupported, "{}: bounds of {} and {}", where, json::to_text(a), json::to_text(b));
    return (compare(*decimal_a, *decimal_b) > 0) == is_lower_bound ? a : b;
}

// Merges the keywords for object members. They depend on each other: each side also restricts the members that only the
// other side names.
class ObjectMerger {
  public:
    ObjectMerger(const Value& a, const Value& b, SchemaCheck& check, const std::string& where)
        : a_(a), b_(b), check_(check), where_(where) {}

    void merge_into(Value& merged) {
        if (json::find(&a_, "properties") != nullptr || json::find(&b_, "properties") != nullptr) {
            Value properties = object_value();
            add_properties(properties, a_, b_);
            add_properties(properties, b_, a_);
            set(merged, "properties", std::move(properties));
        }
        if (json::find(&a_, "patternProperties") != nullptr ||
            json::find(&b_, "patternProperties") != nullptr) {
            Value patterns = object_value();
            add_patterns(patterns, a_, b_);
            add_patterns(patterns, b_, a_);
            set(merged, "patternProperties", std::move(patterns));
        }
        const Value* further_a = json::find(&a_, "additionalProperties");
        const Value* further_b = json::find(&b_, "additionalProperties");
        if (further_a != nullptr && further_b != nullptr)
            set(merged, "additionalProperties", all_of(*further_a, *further_b));
    }

  private:
    // A property that only one side names must also fit the schema that the other side has for further properties.
    void add_properties(Value& all, const Value& from, const Value& other) {
        const Value* properties = json::find(&from, "properties");
        const Value* others = json::find(&other, "properties");
        const Value* further = json::find(&other, "additionalProperties");
        for (size_t i = 0; properties != nullptr && i < properties->keys.size(); ++i) {
            const std::string& name = properties->keys[i];
            if (json::find(&all, name) != nullptr) continue;
            const Value* theirs = json::find(others, name);
            if (theirs == nullptr && further != nullptr && !has_pattern_for(other, name)) theirs = further;
            set(all, name, theirs != nullptr ? all_of(properties->items[i], *theirs) : properties->items[i]);
        }
    }

    bool has_pattern_for(const Value& schema, const std::string& name) {
        const Value* patterns = json::find(&schema, "patternProperties");
        return patterns != nullptr && std::ranges::any_of(patterns->keys, [&](const std::string& pattern) {
                   return check_.pattern(pattern, where_).has(name);
               });
    }

    // Names that fit a pattern of only one side count as further properties of the other side, even if they fit a
    // different pattern of that side.
    static void add_patterns(Value& all, const Value& from, const Value& other) {
        const Value* patterns = json::find(&from, "patternProperties");
        const Value* others = json::find(&other, "patternProperties");
        const Value* further = json::find(&other, "additionalProperties");
        for (size_t i = 0; patterns != nullptr && i < patterns->keys.size(); ++i) {
            const std::string& pattern = patterns->keys[i];
            if (json::find(&all, pattern) != nullptr) continue;
            const Value* theirs = json::find(others, pattern);
            if (theirs == nullptr) theirs = further;
            set(all, pattern, theirs != nullptr ? all_of(patterns->items[i], *theirs) : patterns->items[i]);
        }
    }

    const Value& a_;
    const Value& b_;
    SchemaCheck& check_;
    const std::string& where_;
};

// Returns whether a required member is not allowed.
bool lacks_required(const Value& flat) {
    const Value* properties = json::find(&flat, "properties");
    const Value* required = json::find(&flat, "required");
    if (properties == nullptr || required == nullptr) return false;
    for (size_t i = 0; i < properties->keys.size(); ++i) {
        const Value& schema = properties->items[i];
        const bool is_out = schema.is_boolean() && !schema.boolean;
        if (is_out && std::ranges::any_of(required->items, [&](const Value& name) {
                return name.text == properties->keys[i];
            }))
            return true;
    }
    return false;
}

// Merges the schemas of items: each item must fit the schemas that both sides have for its place.
void merge_items(Value& merged, const Value& a, const Value& b) {
    const auto said_of = [](const Value& side, size_t i) -> const Value* {
        const Value* prefix = json::find(&side, "prefixItems");
        if (prefix != nullptr && i < prefix->items.size()) return &prefix->items[i];
        return json::find(&side, "items");
    };
    size_t n_prefix = 0;
    for (const Value* side : {&a, &b})
        if (const Value* prefix = json::find(side, "prefixItems"))
            n_prefix = std::max(n_prefix, prefix->items.size());
    const auto both = [&](size_t i) {
        const Value* of_a = said_of(a, i);
        const Value* of_b = said_of(b, i);
        if (of_a != nullptr && of_b != nullptr) return all_of(*of_a, *of_b);
        return of_a != nullptr ? *of_a : of_b != nullptr ? *of_b : boolean_schema(true);
    };
    Value prefix = array_value();
    for (size_t i = 0; i < n_prefix; ++i) prefix.items.push_back(both(i));
    if (n_prefix > 0) set(merged, "prefixItems", std::move(prefix));
    if (json::find(&a, "items") != nullptr || json::find(&b, "items") != nullptr)
        set(merged, "items", both(n_prefix));
}

}  // namespace

void check_keywords(const Value& schema, const std::string& where) {
    for (size_t i = 0; i < schema.keys.size(); ++i) {
        const Value& value = schema.items[i];
        if (!value.is_null() && !is_good_value(schema.keys[i], value))
            fail(Status::invalid, "{}: '{}' cannot be {}", where, schema.keys[i], json::to_text(value));
    }
    for (const char* key : {"allOf", "anyOf", "oneOf"}) {
        const Value* members = find_given(schema, key);
        if (members != nullptr && (!members->is_array() || members->items.empty()))
            fail(Status::invalid, "{}: '{}' is a list of schemas that is not empty", where, key);
    }
}

Value flat_keywords(const Value& schema, const std::string& where, bool tracks_seen) {
    for (const char* key : {"$dynamicRef", "$recursiveRef"})
        if (find_given(schema, key) != nullptr)
            fail(Status::unsupported, "{}: '{}' cannot be enforced", where, key);
    Value flat = object_value();
    for (const std::string_view key : k_copied)
        if (const Value* value = find_given(schema, key)) set(flat, key, *value);
    for (const auto& [key, list] : k_listed)
        if (const Value* value = find_given(schema, key)) set(flat, list, array_value({*value}));
    if (const Value* unique = json::find(&flat, "uniqueItems"); unique != nullptr && !unique->boolean)
        erase(flat, "uniqueItems");
    const Value* items = json::find(&flat, "items");
    if (items != nullptr && items->is_array()) {
        Value prefix = *items;
        erase(flat, "items");
        if (!prefix.items.empty()) set(flat, "prefixItems", std::move(prefix));
        if (const Value* further = find_given(schema, "additionalItems")) set(flat, "items", *further);
    }
    if (const Value* contains = find_given(schema, "contains")) {
        const Value* least = find_given(schema, "minContains");
        const Value* most = find_given(schema, "maxContains");
        Value counted = one_member("schema", *contains);
        set(counted, "least", least != nullptr ? *least : number_value(1));
        if (most != nullptr) set(counted, "most", *most);
        set(flat, "contains", array_value({std::move(counted)}));
    }
    move_exclusive_flags(flat);
    check_names(flat, where);
    if (tracks_seen) set(flat, "seen", seen_by(flat));
    return flat;
}

std::optional<Value> merged(const Value& a, const Value& b, SchemaCheck& check, const std::string& where) {
    const Value* values_a = json::find(&a, "enum");
    const Value* values_b = json::find(&b, "enum");
    Value result = object_value();
    if (values_a != nullptr || values_b != nullptr) {
        // SchemaDocument::alternatives() checks listed values against the whole schema, so their other conditions are
        // left out here.
        Value values = values_a == nullptr   ? *values_b
                       : values_b == nullptr ? *values_a
                                             : common_values(*values_a, *values_b);
        if (values.items.empty()) return std::nullopt;
        set(result, "enum", std::move(values));
        return result;
    }
    result = a;
    for (size_t i = 0; i < b.keys.size(); ++i) {
        const std::string& key = b.keys[i];
        const Value& theirs = b.items[i];
        const Value* ours = json::find(&a, key);
        if (ours == nullptr) {
            set(result, key, theirs);
        } else if (key == "type") {
            Value types = common_types(*ours, theirs);
            if (types.items.empty()) return std::nullopt;
            set(result, key, std::move(types));
        } else if (key == "propertyNames") {
            set(result, key, all_of(*ours, theirs));
        } else if (key == "seen") {
            set(result, key, joined_seen(*ours, theirs));
        } else if (key.starts_with("min") || key == "exclusiveMinimum") {
            set(result, key, tighter(*ours, theirs, true, where));
        } else if (key.starts_with("max") || key == "exclusiveMaximum") {
            set(result, key, tighter(*ours, theirs, false, where));
        } else if (theirs.is_array() && key != "prefixItems") {
            set(result, key, joined(*ours, theirs));
        }
    }
    ObjectMerger(a, b, check, where).merge_into(result);
    merge_items(result, a, b);
    check_names(result, where);
    // A missing required member excludes only objects: values of other types still fit.
    const Value* type = json::find(&result, "type");
    const bool is_object =
        type != nullptr &&
        (type->is_string("object") || (type->items.size() == 1 && type->items[0].is_string("object")));
    if (is_object && lacks_required(result)) return std::nullopt;
    return result;
}

void close_properties(Value& flat, const Value& rest) {
    Value seen = *json::find(&flat, "seen");
    if (is_true(seen, "all_names")) return;
    const Value names = *json::find(&seen, "names");
    set(seen, "all_names", boolean_schema(true));
    set(flat, "seen", std::move(seen));
    if (const Value* properties = json::find(&flat, "properties")) {
        Value closed = object_value();
        for (size_t i = 0; i < properties->keys.size(); ++i) {
            const bool is_seen = std::ranges::any_of(
                names.items, [&](const Value& name) { return name.text == properties->keys[i]; });
            set(closed, properties->keys[i],
                is_seen ? properties->items[i] : all_of(properties->items[i], rest));
        }
        set(flat, "properties", std::move(closed));
    }
    const Value* further = json::find(&flat, "additionalProperties");
    set(flat, "additionalProperties", further != nullptr ? all_of(*further, rest) : rest);
}

void close_items(Value& flat, const Value& rest) {
    Value seen = *json::find(&flat, "seen");
    if (is_true(seen, "all_items")) return;
    const int64_t n_seen = count_of(*json::find(&seen, "n_items")).value_or(0);
    Value by = rest;
    if (const Value* contained = json::find(&seen, "items"); !contained->items.empty()) {
        Value any = *contained;
        any.items.push_back(rest);
        by = one_member("anyOf", std::move(any));
    }
    set(seen, "all_items", boolean_schema(true));
    set(flat, "seen", std::move(seen));
    if (const Value* prefix = json::find(&flat, "prefixItems")) {
        Value closed = *prefix;
        for (size_t i = n_seen; i < closed.items.size(); ++i) closed.items[i] = all_of(closed.items[i], by);
        set(flat, "prefixItems", std::move(closed));
    }
    const Value* items = json::find(&flat, "items");
    set(flat, "items", items != nullptr ? all_of(*items, by) : by);
}

Value other_types(const Value& types, bool& has_fractions) {
    has_fractions = has_type(types, "integer") && !has_type(types, "number");
    Value others = array_value();
    for (const std::string_view name : k_types)
        if (name != "integer" && name != "number" && !has_type(types, name))
            others.items.push_back(string_value(name));
    if (!has_type(types, "number") && !has_fractions) others.items.push_back(string_value("number"));
    return others;
}

}  // namespace minim::constraint
