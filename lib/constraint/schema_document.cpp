#include "constraint/schema_document.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "constraint/decimal.h"

namespace minim::constraint {
namespace {

using json::Value;

constexpr int k_most_nested = 100;
constexpr size_t k_most_alternatives = 1000;
// Members of schemas that are looked at for one request. Parts that refer twice to others, which do so too, stand for more of
// them than anybody has time for.
constexpr size_t k_most_members = 500'000;
// Names of one schema: work and memory for them grow with the square of their number.
constexpr size_t k_most_names = 5000;

constexpr auto k_restricting = std::to_array<std::string_view>({"type",
                                                                "enum",
                                                                "properties",
                                                                "required",
                                                                "additionalProperties",
                                                                "propertyNames",
                                                                "patternProperties",
                                                                "minProperties",
                                                                "maxProperties",
                                                                "items",
                                                                "prefixItems",
                                                                "minItems",
                                                                "maxItems",
                                                                "minLength",
                                                                "maxLength",
                                                                "pattern",
                                                                "format",
                                                                "minimum",
                                                                "maximum",
                                                                "exclusiveMinimum",
                                                                "exclusiveMaximum",
                                                                "multipleOf"});

constexpr auto k_cannot_be_enforced = std::to_array<std::string_view>(
    {"not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "contains",
     "minContains", "maxContains", "uniqueItems", "unevaluatedItems", "$dynamicRef", "$recursiveRef"});

bool is_among(std::span<const std::string_view> names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

void erase(Value& object, std::string_view key) {
    const auto place = std::ranges::find(object.keys, key);
    if (place == object.keys.end()) return;
    object.items.erase(object.items.begin() + (place - object.keys.begin()));
    object.keys.erase(place);
}

// Members of members and no member twice, in one order: however often schemas that refer to each other are
// put together, there are only so many of these.
Value all_of(const Value& a, const Value& b) {
    std::map<std::string, Value> members;
    for (const Value* schema : {&a, &b}) {
        const Value* list = json::find(schema, "allOf");
        if (list != nullptr && list->is_array() && schema->keys.size() == 1) {
            for (const Value& member : list->items) members.emplace(json::to_text(member), member);
        } else {
            members.emplace(json::to_text(*schema), *schema);
        }
    }
    if (members.size() == 1) return members.begin()->second;
    Value all = array_value();
    for (auto& [text, member] : members) all.items.push_back(std::move(member));
    Value schema = object_value();
    set(schema, "allOf", std::move(all));
    return schema;
}

bool is_type_name(const Value& value) {
    constexpr auto k_names = std::to_array<std::string_view>(
        {"object", "array", "string", "number", "integer", "boolean", "null"});
    return value.is_string() && is_among(k_names, value.text);
}

bool is_good_value(std::string_view key, const Value& value) {
    const auto all_are = [&](auto is_good) {
        return value.is_array() && std::ranges::all_of(value.items, is_good);
    };
    if (key == "type") return is_type_name(value) || all_are(is_type_name);
    if (key == "required") return all_are([](const Value& name) { return name.is_string(); });
    if (key == "enum" || key == "prefixItems") return value.is_array();
    if (key == "properties" || key == "patternProperties") return value.is_object();
    if (key == "pattern" || key == "format") return value.is_string();
    if (key == "minimum" || key == "maximum" || key == "multipleOf") return value.is_number();
    if (key.starts_with("exclusive")) return value.is_number() || value.is_boolean();
    if (key.starts_with("min") || key.starts_with("max")) return json::to_int64(value).value_or(-1) >= 0;
    return true;
}

void check_names(const Value& flat, const std::string& where) {
    for (const char* key : {"properties", "patternProperties", "required"}) {
        const Value* names = json::find(&flat, key);
        if (names != nullptr && names->items.size() > k_most_names) {
            fail(Status::unsupported, "{}: {} names in '{}'; up to {} can be enforced", where,
                 names->items.size(), key, k_most_names);
        }
    }
}

// What restricts a value, with the spellings of older drafts put into today's.
Value restrictions(const Value& schema, const std::string& where) {
    Value flat = object_value();
    for (size_t i = 0; i < schema.keys.size(); ++i) {
        const std::string& key = schema.keys[i];
        const Value& value = schema.items[i];
        const bool is_off = value.is_boolean() && !value.boolean;
        if (is_among(k_cannot_be_enforced, key) && !(key == "uniqueItems" && is_off))
            fail(Status::unsupported, "{}: '{}' cannot be enforced", where, key);
        if (!is_among(k_restricting, key)) continue;
        if (!is_good_value(key, value))
            fail(Status::invalid, "{}: '{}' cannot be {}", where, key, json::to_text(value));
        set(flat, key, value);
    }
    if (const Value* constant = json::find(&schema, "const")) {
        Value values = array_value();
        values.items.push_back(*constant);
        if (const Value* listed = json::find(&flat, "enum")) {
            const std::string text = json::to_text(*constant);
            const bool is_listed = std::ranges::any_of(
                listed->items, [&](const Value& other) { return json::to_text(other) == text; });
            if (!is_listed) values.items.clear();
        }
        set(flat, "enum", std::move(values));
    }
    const Value* unevaluated = json::find(&schema, "unevaluatedProperties");
    if (unevaluated != nullptr && json::find(&flat, "additionalProperties") == nullptr)
        set(flat, "additionalProperties", *unevaluated);
    const Value* items = json::find(&flat, "items");
    if (items != nullptr && items->is_array()) {
        Value prefix = *items;
        erase(flat, "items");
        set(flat, "prefixItems", std::move(prefix));
        if (const Value* further = json::find(&schema, "additionalItems")) set(flat, "items", *further);
    }
    for (const auto& [exclusive, plain] :
         {std::pair("exclusiveMinimum", "minimum"), std::pair("exclusiveMaximum", "maximum")}) {
        const Value* flag = json::find(&flat, exclusive);
        if (flag == nullptr || !flag->is_boolean()) continue;
        const bool is_exclusive = flag->boolean;
        const Value* bound = json::find(&flat, plain);
        std::optional<Value> kept;
        if (bound != nullptr) kept = *bound;
        erase(flat, exclusive);
        if (!is_exclusive || !kept) continue;
        erase(flat, plain);
        set(flat, exclusive, std::move(*kept));
    }
    check_names(flat, where);
    return flat;
}

// Types are names or lists of names; every integer is a number.
Value common_types(const Value& a, const Value& b) {
    const auto has = [](const Value& types, std::string_view name) {
        if (!types.is_array()) return types.is_string(name);
        return std::ranges::any_of(types.items, [&](const Value& type) { return type.is_string(name); });
    };
    const auto allows = [&](const Value& types, std::string_view name) {
        return has(types, name) || (name == std::string_view("integer") && has(types, "number"));
    };
    Value common = array_value();
    for (const char* name : {"object", "array", "string", "number", "integer", "boolean", "null"}) {
        const bool is_common = allows(a, name) && allows(b, name);
        const bool is_covered = name == std::string_view("integer") && has(common, "number");
        if (is_common && !is_covered) common.items.push_back(string_value(name));
    }
    return common;
}

Value common_values(const Value& a, const Value& b) {
    std::unordered_set<std::string> others;
    for (const Value& value : b.items) others.insert(json::to_text(value));
    Value common = array_value();
    for (const Value& value : a.items)
        if (others.contains(json::to_text(value))) common.items.push_back(value);
    return common;
}

Value all_names(const Value& a, const Value& b) {
    Value all = a;
    for (const Value& name : b.items) {
        const bool is_there =
            std::ranges::any_of(all.items, [&](const Value& other) { return other.text == name.text; });
        if (!is_there) all.items.push_back(name);
    }
    return all;
}

// A property that only one side names must fit what the other says of further properties.
Value all_properties(const Value& a, const Value& b, const Value* further_a, const Value* further_b) {
    Value all = object_value();
    const auto add = [&](const std::string& name, const Value& schema, const Value* other,
                         const Value* further) {
        if (other != nullptr) {
            set(all, name, all_of(schema, *other));
        } else {
            set(all, name, further != nullptr ? all_of(schema, *further) : schema);
        }
    };
    for (size_t i = 0; i < a.keys.size(); ++i)
        add(a.keys[i], a.items[i], json::find(&b, a.keys[i]), further_b);
    for (size_t i = 0; i < b.keys.size(); ++i)
        if (json::find(&a, b.keys[i]) == nullptr) add(b.keys[i], b.items[i], nullptr, further_a);
    return all;
}

const Value& tighter(const Value& a, const Value& b, bool is_lower_bound, const std::string& where) {
    const auto decimal_a = parse_decimal(a.text);
    const auto decimal_b = parse_decimal(b.text);
    if (!decimal_a || !decimal_b)
        fail(Status::unsupported, "{}: bounds of {} and {}", where, json::to_text(a), json::to_text(b));
    return (compare(*decimal_a, *decimal_b) > 0) == is_lower_bound ? a : b;
}

// A flat schema that a value fits where it fits both.
Value merge(const Value& a, const Value& b, const std::string& where) {
    Value merged = a;
    const Value* further_a = json::find(&a, "additionalProperties");
    const Value* further_b = json::find(&b, "additionalProperties");
    for (size_t i = 0; i < b.keys.size(); ++i) {
        const std::string& key = b.keys[i];
        const Value& theirs = b.items[i];
        const Value* ours = json::find(&a, key);
        if (key == "properties") {
            set(merged, key,
                all_properties(ours != nullptr ? *ours : object_value(), theirs, further_a, further_b));
        } else if (ours == nullptr) {
            set(merged, key, theirs);
        } else if (key == "type") {
            set(merged, key, common_types(*ours, theirs));
        } else if (key == "enum") {
            set(merged, key, common_values(*ours, theirs));
        } else if (key == "required") {
            set(merged, key, all_names(*ours, theirs));
        } else if (key == "additionalProperties" || key == "items" || key == "propertyNames") {
            set(merged, key, all_of(*ours, theirs));
        } else if (key.starts_with("min") || key == "exclusiveMinimum") {
            set(merged, key, tighter(*ours, theirs, true, where));
        } else if (key.starts_with("max") || key == "exclusiveMaximum") {
            set(merged, key, tighter(*ours, theirs, false, where));
        } else if (json::to_text(*ours) != json::to_text(theirs)) {
            fail(Status::unsupported, "{}: two different '{}' for one value cannot be enforced", where, key);
        }
    }
    if (json::find(&b, "properties") == nullptr && further_b != nullptr) {
        if (const Value* ours = json::find(&a, "properties"))
            set(merged, "properties", all_properties(*ours, object_value(), further_a, further_b));
    }
    check_names(merged, where);
    return merged;
}

// Of a flat schema.
size_t member_count(const Value& schema) {
    const Value* properties = json::find(&schema, "properties");
    return schema.keys.size() + (properties == nullptr ? 0 : properties->keys.size());
}

// The token of a JSON pointer, or of a URI fragment with one.
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

}  // namespace

Value boolean_schema(bool value) {
    Value schema;
    schema.kind = Value::Kind::boolean;
    schema.boolean = value;
    return schema;
}

Value object_value() {
    Value value;
    value.kind = Value::Kind::object;
    return value;
}

Value array_value() {
    Value value;
    value.kind = Value::Kind::array;
    return value;
}

Value string_value(std::string_view text) {
    Value value;
    value.kind = Value::Kind::string;
    value.text = text;
    return value;
}

void set(Value& object, std::string_view key, Value value) {
    const auto place = std::ranges::find(object.keys, key);
    if (place != object.keys.end()) {
        object.items[static_cast<size_t>(place - object.keys.begin())] = std::move(value);
        return;
    }
    object.keys.emplace_back(key);
    object.items.push_back(std::move(value));
}

void SchemaDocument::count_members(size_t n, const std::string& where) const {
    work_.n_members += n;
    if (work_.n_members > k_most_members)
        fail(Status::unsupported, "{}: more than {} members of schemas to put together", where,
             k_most_members);
}

std::vector<Value> SchemaDocument::merge_each(const std::vector<Value>& some,
                                              const std::vector<Value>& others,
                                              const std::string& where) const {
    if (!others.empty() && some.size() > k_most_alternatives / others.size())
        fail(Status::unsupported, "{}: more than {} alternatives", where, k_most_alternatives);
    std::vector<Value> both;
    for (const Value& a : some) {
        for (const Value& b : others) {
            count_members(member_count(a) + member_count(b), where);
            both.push_back(merge(a, b, where));
        }
    }
    return both;
}

std::vector<Value> SchemaDocument::expand(const Value& schema, const std::string& where, int depth) const {
    if (schema.is_boolean()) return schema.boolean ? std::vector{object_value()} : std::vector<Value>();
    if (!schema.is_object())
        fail(Status::invalid, "{}: a schema is an object or a boolean, not {}", where, json::to_text(schema));
    if (depth > k_most_nested) fail(Status::invalid, "{}: the schema refers to itself without end", where);

    count_members(1 + schema.keys.size(), where);
    std::vector<Value> results = {restrictions(schema, where)};
    const auto restrict_to = [&](const std::vector<Value>& others) {
        results = merge_each(results, others, where);
    };
    if (const Value* reference = json::find(&schema, "$ref"))
        restrict_to(expand(target_of(*reference, where), where, depth + 1));
    for (const char* key : {"allOf", "anyOf", "oneOf"}) {
        const Value* members = json::find(&schema, key);
        if (members == nullptr) continue;
        if (!members->is_array() || members->items.empty())
            fail(Status::invalid, "{}: '{}' is a list of schemas that is not empty", where, key);
        std::vector<Value> of_any;
        for (const Value& each : members->items) {
            const auto expanded = expand(each, where, depth + 1);
            if (std::string_view(key) == "allOf") {
                restrict_to(expanded);
            } else {
                of_any.insert(of_any.end(), expanded.begin(), expanded.end());
            }
        }
        if (std::string_view(key) != "allOf") restrict_to(of_any);
    }
    return results;
}

const Value& SchemaDocument::target_of(const Value& reference, const std::string& where) const {
    if (!reference.is_string() || !reference.text.starts_with('#')) {
        fail(Status::unsupported, "{}: $ref {} is not a place in the schema itself", where,
             json::to_text(reference));
    }
    const Value* at = &root_;
    const std::string_view pointer = std::string_view(reference.text).substr(1);
    for (size_t begin = 0; begin < pointer.size() && at != nullptr;) {
        if (pointer[begin] != '/') fail(Status::unsupported, "{}: $ref '{}'", where, reference.text);
        const size_t end = std::min(pointer.find('/', begin + 1), pointer.size());
        at = member(*at, unescaped(pointer.substr(begin + 1, end - begin - 1)));
        begin = end;
    }
    if (at == nullptr) fail(Status::invalid, "{}: $ref '{}' is not in the schema", where, reference.text);
    return *at;
}

}  // namespace minim::constraint
