// SPDX-License-Identifier: Apache-2.0
// Helpers to build schemas from JSON values, and equality as in JSON Schema: 1.0 equals 1, and the order of members does not
// matter.
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

// Returns a member of an object; nullptr if it is absent or null.
const json::Value* find_given(const json::Value& object, std::string_view key) noexcept;

// Returns a text that is the same for equal values only.
std::string canonical_text(const json::Value& value);
bool are_equal(const json::Value& a, const json::Value& b);

// Returns whether a value is a number without fraction, however it is written: 1.0, 1e3.
bool is_whole(const json::Value& value);
// Returns the value as a count; nothing if it is not a whole number or is negative. A value that is too large becomes
// INT64_MAX.
std::optional<int64_t> count_of(const json::Value& value);

// Returns the schema of what fits both, in a normal form: nested combinations are flattened, duplicates removed, members sorted. So
// schemas that refer to each other have a finite number of combinations.
json::Value all_of(const json::Value& a, const json::Value& b);

}  // namespace minim::constraint
