// SPDX-License-Identifier: Apache-2.0
#include "chat/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/format_text.h"
#include "base/utf8.h"
#include "chat/python_text.h"

namespace minim::chat::jinja {
namespace {

template <typename T>
Value with(Kind kind, T value) {
    Value result;
    result.kind = kind;
    result.pointer = std::make_shared<const T>(std::move(value));
    return result;
}

// Numbers compare by value, whatever their kind; booleans count as 0 and 1.
bool equal_numbers(const Value& a, const Value& b) noexcept {
    if (a.is(Kind::real) || b.is(Kind::real)) return a.as_real() == b.as_real();
    const auto whole = [](const Value& v) { return v.is(Kind::boolean) ? int64_t{v.boolean} : v.integer; };
    return whole(a) == whole(b);
}

bool equal_dicts(const Dict& a, const Dict& b) noexcept {
    if (a.keys.size() != b.keys.size()) return false;
    for (size_t i = 0; i < a.keys.size(); ++i) {
        const Value* other = b.find(a.keys[i].bytes());
        if (other == nullptr || !equal(a.values[i], *other)) return false;
    }
    return true;
}

// Values nested deeper are refused, so that walking and freeing them cannot exhaust the stack. JSON has at most 128.
uint32_t depth_around(const std::vector<Value>& items) {
    constexpr uint32_t k_max_value_depth = 200;
    uint32_t depth = 0;
    for (const Value& item : items) {
        if (item.is(Kind::list)) depth = std::max(depth, item.list().depth);
        if (item.is(Kind::dict)) depth = std::max(depth, item.dict().depth);
    }
    if (depth >= k_max_value_depth)
        fail(Status::invalid, "the chat template nests values deeper than {} levels", k_max_value_depth);
    return depth + 1;
}

template <typename T>
int sign_of(const T& a, const T& b) {
    return a < b ? -1 : b < a ? 1 : 0;
}

// Prints values, and remembers whether anything came from the request.
class Printer {
  public:
    explicit Printer(const JsonStyle* json) : json_(json) {}

    MarkedText take() { return {out_, has_user_bytes_}; }

    void repr(const Value& value) {
        switch (value.kind) {
            case Kind::none:
                out_ += json_ != nullptr ? "null" : "None";
                return;
            case Kind::boolean:
                if (json_ != nullptr) out_ += value.boolean ? "true" : "false";
                if (json_ == nullptr) out_ += value.boolean ? "True" : "False";
                return;
            case Kind::integer:
                out_ += std::to_string(value.integer);
                return;
            case Kind::big_integer:
                out_ += value.bytes();
                return;
            case Kind::real:
                out_ += json_ != nullptr ? json_float(value.real) : python_float(value.real);
                return;
            case Kind::text:
                return quoted(value.text());
            case Kind::list:
                return items(value.list());
            case Kind::dict:
                return members(value.dict());
            case Kind::undefined:
            case Kind::space:
            case Kind::loop:
            case Kind::macro:
            case Kind::method:
                break;
        }
        if (json_ != nullptr)
            fail(Status::invalid, "Object of type {} is not JSON serializable", type_name(value));
        if (value.is(Kind::undefined)) {
            out_ += "Undefined";
            return;
        }
        fail(Status::unsupported, "the chat template prints a {}", type_name(value));
    }

  private:
    static std::string json_float(double value) {
        if (std::isnan(value)) return "NaN";
        if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
        return python_float(value);
    }

    void quoted(const MarkedText& value) {
        has_user_bytes_ = has_user_bytes_ || value.has_user_bytes();
        if (json_ == nullptr) {
            out_ += python_repr(value.bytes());
        } else if (!json_->ensure_ascii) {
            json::append_quoted(out_, value.bytes());
        } else {
            ascii_quoted(value.bytes());
        }
    }

    void ascii_quoted(std::string_view bytes) {
        std::string quoted;
        json::append_quoted(quoted, bytes);
        std::string_view rest = quoted;
        while (!rest.empty()) {
            const Utf8Step step = next_utf8(rest);
            if (step.code_point < 0x7F) {
                out_ += rest[0];
            } else if (step.code_point >= 0x10000) {
                const auto above = static_cast<unsigned>(step.code_point - 0x10000);
                out_ += format_text("\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10U), 0xDC00 + (above & 0x3FFU));
            } else {
                out_ += format_text("\\u{:04x}", static_cast<unsigned>(step.code_point));
            }
            rest.remove_prefix(step.length);
        }
    }

    void new_line() {
        if (json_ == nullptr || !json_->has_indent) return;
        out_ += '\n';
        for (size_t i = 0; i < level_; ++i) out_ += json_->indent;
    }

    void separate(size_t index) {
        if (index > 0) out_ += json_ != nullptr ? json_->comma : ", ";
        new_line();
    }

    void items(const List& list) {
        const bool tuple = list.is_tuple && json_ == nullptr;
        out_ += tuple ? '(' : '[';
        ++level_;
        for (size_t i = 0; i < list.items.size(); ++i) {
            separate(i);
            repr(list.items[i]);
        }
        --level_;
        if (!list.items.empty()) new_line();
        if (tuple && list.items.size() == 1) out_ += ',';
        out_ += tuple ? ')' : ']';
    }

    void members(const Dict& dict) {
        dict.was_read = true;
        std::vector<size_t> order(dict.keys.size());
        std::iota(order.begin(), order.end(), size_t{0});
        if (json_ != nullptr && json_->sort_keys) {
            std::sort(order.begin(), order.end(),
                      [&](size_t a, size_t b) { return dict.keys[a].bytes() < dict.keys[b].bytes(); });
        }
        out_ += '{';
        ++level_;
        for (size_t i = 0; i < order.size(); ++i) {
            separate(i);
            quoted(dict.keys[order[i]]);
            out_ += json_ != nullptr ? json_->colon : ": ";
            repr(dict.values[order[i]]);
        }
        --level_;
        if (!order.empty()) new_line();
        out_ += '}';
    }

    const JsonStyle* json_;  // nullptr: Python's repr()
    std::string out_;
    bool has_user_bytes_ = false;
    size_t level_ = 0;
};

}  // namespace

const Value* Dict::find(std::string_view key) const noexcept {
    for (size_t i = 0; i < keys.size(); ++i)
        if (keys[i].bytes() == key) return &values[i];
    return nullptr;
}

const Value* Dict::read(std::string_view key) const noexcept {
    const Value* found = find(key);
    if (key == "content" || (key != "role" && found != nullptr && is_true(*found))) was_read = true;
    return found;
}

double Value::as_real() const noexcept {
    if (is(Kind::real)) return real;
    return is(Kind::boolean) ? (boolean ? 1.0 : 0.0) : static_cast<double>(integer);
}

Value undefined(std::string_view name) {
    if (name.empty()) return {};
    return with(Kind::undefined, MarkedText(name, false));
}

Value none() {
    Value value;
    value.kind = Kind::none;
    return value;
}

Value boolean(bool flag) {
    Value value;
    value.kind = Kind::boolean;
    value.boolean = flag;
    return value;
}

Value integer(int64_t number) {
    Value value;
    value.kind = Kind::integer;
    value.integer = number;
    return value;
}

Value real(double number) {
    Value value;
    value.kind = Kind::real;
    value.real = number;
    return value;
}

Value text(MarkedText value) {
    return with(Kind::text, std::move(value));
}

Value text(std::string_view template_text) {
    return text(MarkedText(template_text, false));
}

Value list(std::vector<Value> items, bool is_tuple) {
    const uint32_t depth = depth_around(items);
    return with(Kind::list, List{std::move(items), is_tuple, depth});
}

Value dict(Dict value) {
    value.depth = depth_around(value.values);
    return with(Kind::dict, std::move(value));
}

Value method(Value self, std::string_view name) {
    return with(Kind::method, Method{std::move(self), std::string(name)});
}

Value from_json(const json::Value& value) {
    switch (value.kind) {
        case json::Value::Kind::null:
            return none();
        case json::Value::Kind::boolean:
            return boolean(value.boolean);
        case json::Value::Kind::number: {
            if (!value.is_integer()) return real(value.number);
            const auto small = json::to_int64(value);
            return small ? integer(*small) : with(Kind::big_integer, MarkedText(value.text, true));
        }
        case json::Value::Kind::string:
            return text(MarkedText(value.text, true));
        case json::Value::Kind::array: {
            std::vector<Value> items;
            items.reserve(value.items.size());
            for (const json::Value& item : value.items) items.push_back(from_json(item));
            return list(std::move(items));
        }
        case json::Value::Kind::object:
            break;
    }
    Dict members;
    for (size_t i = 0; i < value.items.size(); ++i) {
        members.keys.emplace_back(value.keys[i], true);
        members.values.push_back(from_json(value.items[i]));
    }
    return dict(std::move(members));
}

bool is_true(const Value& value) noexcept {
    switch (value.kind) {
        case Kind::undefined:
        case Kind::none:
            return false;
        case Kind::boolean:
            return value.boolean;
        case Kind::integer:
            return value.integer != 0;
        case Kind::real:
            return value.real != 0.0;
        case Kind::text:
            return !value.text().is_empty();
        case Kind::list:
            return !value.list().items.empty();
        case Kind::dict:
            return !value.dict().keys.empty();
        case Kind::loop:
        case Kind::big_integer:
        case Kind::space:
        case Kind::macro:
        case Kind::method:
            break;
    }
    return true;
}

bool equal(const Value& a, const Value& b) noexcept {
    if (a.is_number() && b.is_number()) return equal_numbers(a, b);
    if (a.kind != b.kind) return false;
    switch (a.kind) {
        case Kind::undefined:
        case Kind::none:
            return true;
        case Kind::text:
        case Kind::big_integer:
            return a.bytes() == b.bytes();
        case Kind::list:
            return a.list().is_tuple == b.list().is_tuple &&
                   std::equal(a.list().items.begin(), a.list().items.end(), b.list().items.begin(),
                              b.list().items.end(),
                              [](const Value& x, const Value& y) { return equal(x, y); });
        case Kind::dict:
            return equal_dicts(a.dict(), b.dict());
        default:
            return a.pointer == b.pointer;
    }
}

int compare(const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) {
        if (a.is(Kind::integer) && b.is(Kind::integer)) return sign_of(a.integer, b.integer);
        return sign_of(a.as_real(), b.as_real());
    }
    if (a.is(Kind::text) && b.is(Kind::text)) return sign_of(a.bytes(), b.bytes());
    if (a.is(Kind::list) && b.is(Kind::list) && a.list().is_tuple == b.list().is_tuple) {
        const auto& left = a.list().items;
        const auto& right = b.list().items;
        for (size_t i = 0; i < std::min(left.size(), right.size()); ++i)
            if (!equal(left[i], right[i])) return compare(left[i], right[i]);
        return sign_of(left.size(), right.size());
    }
    fail(Status::invalid, "'<' not supported between instances of '{}' and '{}'", type_name(a), type_name(b));
}

std::string_view type_name(const Value& value) noexcept {
    switch (value.kind) {
        case Kind::undefined:
            return "Undefined";
        case Kind::none:
            return "NoneType";
        case Kind::boolean:
            return "bool";
        case Kind::integer:
        case Kind::big_integer:
            return "int";
        case Kind::real:
            return "float";
        case Kind::text:
            return "str";
        case Kind::list:
            return value.list().is_tuple ? "tuple" : "list";
        case Kind::dict:
            return "dict";
        case Kind::space:
            return "Namespace";
        case Kind::loop:
            return "LoopContext";
        case Kind::macro:
            return "Macro";
        case Kind::method:
            break;
    }
    return "method";
}

MarkedText to_text(const Value& value) {
    if (value.is(Kind::text)) return value.text();
    if (value.is(Kind::undefined)) return {};
    Printer printer(nullptr);
    printer.repr(value);
    return printer.take();
}

MarkedText to_json(const Value& value, const JsonStyle& style) {
    Printer printer(&style);
    printer.repr(value);
    return printer.take();
}

}  // namespace minim::chat::jinja
