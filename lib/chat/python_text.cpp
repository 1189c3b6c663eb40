// SPDX-License-Identifier: Apache-2.0
#include "chat/python_text.h"

#include <charconv>
#include <cmath>
#include <iterator>

#include "base/format_text.h"
#include "base/utf8.h"
#include "chat/printable.h"

namespace minim::chat {

using json::Value;

namespace {

void append_escaped(std::string& out, char32_t c) {
    const auto code = static_cast<unsigned>(c);
    if (code <= 0xFF) {
        out += format_text("\\x{:02x}", code);
    } else if (code <= 0xFFFF) {
        out += format_text("\\u{:04x}", code);
    } else {
        out += format_text("\\U{:08x}", code);
    }
}

void append_repr(std::string& out, std::string_view text) {
    const bool has_single = text.find('\'') != std::string_view::npos;
    const bool has_double = text.find('"') != std::string_view::npos;
    const char quote = has_single && !has_double ? '"' : '\'';
    out += quote;
    while (!text.empty()) {
        const Utf8Step step = next_utf8(text);
        const bool whole = step.state == Utf8State::complete;
        const char32_t c = whole ? step.code_point : static_cast<unsigned char>(text[0]);
        const size_t bytes = whole ? step.length : 1;
        if (c == '\\' || c == static_cast<char32_t>(quote)) {
            out += '\\';
            out += text[0];
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\r') {
            out += "\\r";
        } else if (c == '\t') {
            out += "\\t";
        } else if (!whole || !is_printable(c)) {
            append_escaped(out, c);
        } else {
            out += text.substr(0, bytes);
        }
        text.remove_prefix(bytes);
    }
    out += quote;
}

}  // namespace

std::string python_float(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";

    // "d.ddde±xx", shortest; at most 17 digits.
    char buffer[40];
    const auto end =
        std::to_chars(std::begin(buffer), std::end(buffer), value, std::chars_format::scientific);
    const std::string_view text(buffer, end.ptr - buffer);
    const size_t mark = text.find('e');
    const std::string_view exponent_text = text.substr(text[mark + 1] == '+' ? mark + 2 : mark + 1);
    int exponent = 0;
    std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);

    std::string result(text.starts_with('-') ? "-" : "");
    std::string digits;
    for (const char c : text.substr(0, mark)) {
        if (c >= '0' && c <= '9') digits += c;
    }

    // CPython's float_repr_style: plain notation where the point falls within 4 zeros before and 16 digits
    // after.
    if (exponent < -4 || exponent >= 16) {
        result += digits[0];
        if (digits.size() > 1) result.append(".").append(digits, 1);
        result += format_text("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
    } else if (exponent < 0) {
        result.append("0.").append(-exponent - 1, '0').append(digits);
    } else {
        const auto whole = static_cast<size_t>(exponent) + 1;
        if (digits.size() <= whole) digits.append(whole + 1 - digits.size(), '0');
        result.append(digits, 0, whole).append(".").append(digits, whole);
    }
    return result;
}

std::string python_repr(std::string_view utf8) {
    std::string out;
    append_repr(out, utf8);
    return out;
}

bool is_true(const Value* value) noexcept {
    if (value == nullptr) return false;
    switch (value->kind) {
        case Value::Kind::null:
            return false;
        case Value::Kind::boolean:
            return value->boolean;
        case Value::Kind::number:
            return value->number != 0.0;
        case Value::Kind::string:
            return !value->text.empty();
        case Value::Kind::array:
        case Value::Kind::object:
            return !value->items.empty();
    }
    return false;
}

}  // namespace minim::chat
