// SPDX-License-Identifier: Apache-2.0
// JSON as a tree that keeps what general libraries lose: the order of keys, the difference between 1.0 and 1, and
// integers of any length. Running out of memory always throws std::bad_alloc. (nlohmann-json's trees end the process
// instead, because they allocate when they are compared or freed.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace minim::json {

// Containers nested deeper than this are refused, so that walking a tree cannot exhaust the stack.
inline constexpr size_t k_max_depth = 128;

struct Value {
    enum class Kind { null, boolean, number, string, array, object };

    Kind kind = Kind::null;
    bool boolean = false;
    double number = 0.0;            // a number, rounded
    std::string text;               // a string's UTF-8 text; a number's digits as they are written
    std::vector<std::string> keys;  // object: unique, one for each item
    std::vector<Value> items;       // elements of an array, values of an object

    bool is_null() const noexcept { return kind == Kind::null; }
    bool is_boolean() const noexcept { return kind == Kind::boolean; }
    bool is_number() const noexcept { return kind == Kind::number; }
    bool is_string() const noexcept { return kind == Kind::string; }
    bool is_array() const noexcept { return kind == Kind::array; }
    bool is_object() const noexcept { return kind == Kind::object; }

    bool is_string(std::string_view other) const noexcept { return is_string() && text == other; }
    bool is_integer() const noexcept;  // written without fraction and exponent
};

// The source of a document decides the status of its errors: a bad argument (Status::invalid), or a bad file
// (Status::format with a reason).
enum class Source { argument, file };

// Parses one document. If a key is repeated, the object has the last value at the position of the first key, as in Python.
// Throws, naming the document `what`, for anything that is not strict JSON in UTF-8, for a number beyond the range of a
// double and for nesting beyond k_max_depth. Files may have NaN, Infinity and -Infinity, as Python writes and reads them.
Value parse(std::string_view text, std::string_view what, Source source);

// Returns a member of an object; nullptr if `value` is nullptr, is not an object or has no such key.
const Value* find(const Value* value, std::string_view key) noexcept;

// Returns the value as an integer; nothing if it is not one or does not fit.
std::optional<int64_t> to_int64(const Value& value) noexcept;

// Returns the value as compact JSON, for messages.
std::string to_text(const Value& value);

// Append `text` with JSON's escapes for quotes, backslashes and control characters; append_quoted() adds quotes.
void append_escaped(std::string& out, std::string_view text);
void append_quoted(std::string& out, std::string_view text);

}  // namespace minim::json
