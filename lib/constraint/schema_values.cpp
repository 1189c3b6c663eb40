// SPDX-License-Identifier: Apache-2.0
#include "constraint/schema_values.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "constraint/decimal.h"

namespace minim::constraint {

using json::Value;

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

Value array_value(std::vector<Value> items) {
    Value value;
    value.kind = Value::Kind::array;
    value.items = std::move(items);
    return value;
}

Value string_value(std::string_view text) {
    Value value;
    value.kind = Value::Kind::string;
    value.text = text;
    return value;
}

Value number_value(int64_t number) {
    Value value;
    value.kind = Value::Kind::number;
    value.number = static_cast<double>(number);
    value.text = std::to_string(number);
    return value;
}

void set(Value& object, std::string_view key, Value value) {
    const auto place = std::ranges::find(object.keys, key);
    if (place != object.keys.end()) {
        object.items[place - object.keys.begin()] = std::move(value);
        return;
    }
    object.keys.emplace_back(key);
    object.items.push_back(std::move(value));
}

void erase(Value& object, std::string_view key) {
    const auto place = std::ranges::find(object.keys, key);
    if (place == object.keys.end()) return;
    object.items.erase(object.items.begin() + (place - object.keys.begin()));
    object.keys.erase(place);
}

Value one_member(std::string_view key, Value value) {
    Value object = object_value();
    set(object, key, std::move(value));
    return object;
}

const Value* find_given(const Value& object, std::string_view key) noexcept {
    const Value* value = json::find(&object, key);
    return value != nullptr && value->is_null() ? nullptr : value;
}

std::string canonical_text(const Value& value) {
    if (value.is_number()) {
        const auto decimal = parse_decimal(value.text);
        return decimal ? to_text(*decimal) : value.text;
    }
    if (value.is_array()) {
        std::string text = "[";
        for (const Value& item : value.items) text += canonical_text(item) + ",";
        return text + "]";
    }
    if (value.is_object()) {
        std::map<std::string, std::string> members;
        for (size_t i = 0; i < value.keys.size(); ++i)
            members[value.keys[i]] = canonical_text(value.items[i]);
        std::string text = "{";
        for (const auto& [key, member] : members) {
            json::append_quoted(text, key);
            text += ":" + member + ",";
        }
        return text + "}";
    }
    return json::to_text(value);
}

bool are_equal(const Value& a, const Value& b) {
    if (a.kind != b.kind) return false;
    if (a.is_string() || (a.is_integer() && b.is_integer())) return a.text == b.text;
    return canonical_text(a) == canonical_text(b);
}

bool is_whole(const Value& value) {
    if (!value.is_number()) return false;
    const auto decimal = parse_decimal(value.text);
    return decimal && decimal->fraction.empty();
}

std::optional<int64_t> count_of(const Value& value) {
    if (!is_whole(value)) return std::nullopt;
    const Decimal decimal = parse_decimal(value.text).value();
    if (decimal.is_negative && !decimal.is_zero()) return std::nullopt;
    constexpr size_t k_max_digits_of_count = 18;
    if (decimal.whole.size() > k_max_digits_of_count) return std::numeric_limits<int64_t>::max();
    return decimal.is_zero() ? 0 : std::stoll(decimal.whole);
}

Value all_of(const Value& a, const Value& b) {
    for (const Value* schema : {&a, &b})
        if (schema->is_boolean() && !schema->boolean) return *schema;
    std::map<std::string, Value> members;
    for (const Value* schema : {&a, &b}) {
        const Value* list = json::find(schema, "allOf");
        if (list != nullptr && list->is_array() && schema->keys.size() == 1) {
            for (const Value& member : list->items) members.emplace(json::to_text(member), member);
        } else if (!schema->is_boolean() || !schema->boolean) {
            members.emplace(json::to_text(*schema), *schema);
        }
    }
    if (members.empty()) return boolean_schema(true);
    for (const auto& [text, member] : members) {
        const Value* other = member.keys.size() == 1 ? json::find(&member, "not") : nullptr;
        if (other != nullptr && members.contains(json::to_text(*other))) return boolean_schema(false);
    }
    if (members.size() == 1) return members.begin()->second;
    Value all = array_value();
    for (auto& [text, member] : members) all.items.push_back(std::move(member));
    return one_member("allOf", std::move(all));
}

}  // namespace minim::constraint
