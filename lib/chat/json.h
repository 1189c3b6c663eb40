// Messages, tools and template variables arrive as JSON. This tree keeps what a general JSON library loses
// and the prompt shows: the order of keys, 1.0 as distinct from 1, and integers of any length.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minim::chat {

// Containers nested deeper than this are refused, so that walking a tree cannot exhaust the stack.
inline constexpr size_t k_max_json_depth = 128;

struct Value {
    enum class Kind { null, boolean, number, string, array, object };

    Kind kind = Kind::null;
    bool boolean = false;
    std::string text;               // a string's UTF-8 text; a number as Python prints it
    std::vector<std::string> keys;  // object: unique, one for each item
    std::vector<Value> items;       // elements of an array, values of an object

    bool is_null() const noexcept { return kind == Kind::null; }
    bool is_string() const noexcept { return kind == Kind::string; }
    bool is_array() const noexcept { return kind == Kind::array; }
    bool is_object() const noexcept { return kind == Kind::object; }
};

// Reads one JSON document. Of a repeated key the last value counts, at the place of the first, as in Python.
// Throws Status::invalid, naming the document `what`, on anything that is not strict JSON in UTF-8, on a
// number beyond the range of a double and on nesting beyond k_max_json_depth.
Value parse_json(std::string_view json, std::string_view what);

// The member of an object; nullptr where `value` is nullptr, is no object or has no such key.
const Value* find(const Value* value, std::string_view key) noexcept;

// Python's truth value: absent (nullptr), null, false, zero and empty things are false.
bool is_true(const Value* value) noexcept;

}  // namespace minim::chat
