// JSON values as schemas are put together from them, and their equality as JSON Schema means it: 1.0 is 1, and the order
// of members does not count.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace minim::constraint {

json::Value boolean_schema(bool value);
json::Value object_value();
json::Value array_value(std::vector<json::Value> items = {});
json::Value string_value(std::string_view text);
json::Value number_value(int64_t number);
void set(json::Value& object, std::string_view key, json::Value value);
void erase(json::Value& object, std::string_view key);
// {key: value}
json::Value one_member(std::string_view key, json::Value value);

// The member of an object, unless it is null, which counts as absent; nullptr where there is none.
const json::Value* find_given(const json::Value& object, std::string_view key) noexcept;

// The same text for equal values and no others.
std::string canonical_text(const json::Value& value);
bool are_equal(const json::Value& a, const json::Value& b);

// A number without fraction, however it is written: 1.0, 1e3.
bool is_whole(const json::Value& value);
// Nothing where the value is no whole number or is negative. What does not fit is INT64_MAX.
std::optional<int64_t> count_of(const json::Value& value);

// The schema of what fits both. Members of members and no member twice, in one order: however often schemas that refer to
// each other are put together, there are only so many of these.
json::Value all_of(const json::Value& a, const json::Value& b);

}  // namespace minim::constraint
