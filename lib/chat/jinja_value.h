// SPDX-License-Identifier: Apache-2.0
// Values of chat templates, with Python's behaviour: what is true, equal, smaller, and how values print.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "chat/marked_text.h"

namespace minim::chat::jinja {

struct Value;
struct Macro;
struct Method;
struct Namespace;
struct Loop;

struct List {
    std::vector<Value> items;
    bool is_tuple = false;
    uint32_t depth = 1;  // of nested lists and dicts
};

struct Dict {
    std::vector<MarkedText> keys;
    std::vector<Value> values;
    uint32_t depth = 1;
    // True if the template has read the content of this message, or a member that is neither the role nor empty: the
    // template has not passed over the message.
    mutable bool was_read = false;

    const Value* find(std::string_view key) const noexcept;
    // Returns find() for the template, and sets was_read.
    const Value* read(std::string_view key) const noexcept;
};

enum class Kind : uint8_t {
    undefined,
    none,
    boolean,
    integer,
    big_integer,  // beyond 64 bits: its digits as text
    real,
    text,
    list,
    dict,
    space,   // namespace(...)
    loop,    // the variable `loop`
    macro,   // of the template
    method,  // of a value, or a function: not yet called
};

// Immutable but for namespaces and loops, and cheap to copy.
struct Value {
    Kind kind = Kind::undefined;
    union {
        bool boolean;
        int64_t integer = 0;
        double real;
    };
    std::shared_ptr<const void> pointer;  // of undefined: its name for messages, or nothing

    bool is(Kind other) const noexcept { return kind == other; }
    bool is_number() const noexcept {
        return kind == Kind::integer || kind == Kind::real || kind == Kind::boolean;
    }

    const MarkedText& text() const noexcept { return *static_cast<const MarkedText*>(pointer.get()); }
    std::string_view bytes() const noexcept { return text().bytes(); }
    const List& list() const noexcept { return *static_cast<const List*>(pointer.get()); }
    const Dict& dict() const noexcept { return *static_cast<const Dict*>(pointer.get()); }
    const Macro& macro() const noexcept { return *static_cast<const Macro*>(pointer.get()); }
    const Method& method() const noexcept { return *static_cast<const Method*>(pointer.get()); }
    const Namespace& space() const noexcept { return *static_cast<const Namespace*>(pointer.get()); }
    const Loop& loop() const noexcept { return *static_cast<const Loop*>(pointer.get()); }
    double as_real() const noexcept;  // of a number
};

struct Namespace {
    mutable std::vector<std::pair<std::string, Value>> members;
};

struct Method {
    Value self;  // undefined for a function
    std::string name;
};

Value undefined(std::string_view name = {});
Value none();
Value boolean(bool value);
Value integer(int64_t value);
Value real(double value);
Value text(MarkedText value);
Value text(std::string_view template_text);
Value list(std::vector<Value> items, bool is_tuple = false);
Value dict(Dict value);
Value method(Value self, std::string_view name);

// Converts a part of the request. All its strings and keys are marked as the request's.
Value from_json(const json::Value& value);

bool is_true(const Value& value) noexcept;
bool equal(const Value& a, const Value& b) noexcept;
// Returns -1, 0 or 1. Throws invalid for kinds that have no order between them.
int compare(const Value& a, const Value& b);
// Returns Python's name of the type, for messages.
std::string_view type_name(const Value& value) noexcept;

// Returns str() of a value, marked as the request's if any part of it is. Throws unsupported for a value that prints as
// an address.
MarkedText to_text(const Value& value);

struct JsonStyle {
    bool ensure_ascii = false;
    bool sort_keys = false;
    std::string indent;        // for one level
    bool has_indent = false;   // one item a line
    std::string comma = ", ";  // "," if has_indent
    std::string colon = ": ";
};
// Returns json.dumps() of a value, marked as by to_text(). Throws invalid for values that JSON does not have.
MarkedText to_json(const Value& value, const JsonStyle& style);

}  // namespace minim::chat::jinja
