// SPDX-License-Identifier: Apache-2.0
// Filters, tests, methods and functions of chat templates. They know nothing but their arguments: no files, no clock, no
// environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja_value.h"

namespace minim::chat::jinja {

// Bounds the work of one rendering: a step is about as much as looking up a variable or copying 8 bytes.
class Meter {
  public:
    explicit Meter(uint64_t steps) : left_(steps) {}
    // Throws Status::invalid when the steps are used up.
    void spend(uint64_t steps);
    void spend_text(size_t bytes) { spend(bytes / 8 + 1); }

  private:
    uint64_t left_;
};

struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string_view, Value>> keywords;
};

bool is_filter(std::string_view name) noexcept;
bool is_test(std::string_view name) noexcept;
bool is_function(std::string_view name) noexcept;
// Returns whether this is a function of Jinja or transformers for which is_function() is false.
bool is_unsupported_function(std::string_view name) noexcept;

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter);
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, Meter& meter);
// Calls a value's method, or a function other than namespace(), which the interpreter handles.
Value call_method(const Method& method, const Arguments& arguments, Meter& meter);

// Return value.name and value[key]; undefined if there is none. Throw for an undefined value.
Value attribute(const Value& value, std::string_view name);
Value subscript(const Value& value, const Value& key, Meter& meter);
// Returns value[begin:end:step]; a missing bound is undefined or none.
Value slice(const Value& value, const Value& begin, const Value& end, const Value& step, Meter& meter);

// Returns the items that a loop runs over: the items of a list, the keys of a dict, the characters of a text; none for
// undefined.
std::vector<Value> items_of(const Value& value, Meter& meter);
bool contains(const Value& container, const Value& item, Meter& meter);

[[noreturn]] void fail_undefined(const Value& value);

}  // namespace minim::chat::jinja
