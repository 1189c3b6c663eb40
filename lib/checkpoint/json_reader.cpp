// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json_reader.h"

#include <charconv>
#include <system_error>

#include "base/format_text.h"
#include "base/utf8.h"
#include "checkpoint/byte_source.h"

namespace minim::checkpoint {
namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Returns the number; nothing if `text` is not only digits, or is 2^64 or more.
std::optional<uint64_t> parse_digits(std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace

void JsonReader::fail_here(Reason reason, std::string_view text) const {
    throw_bad_file(file_, reason, position(), text);
}

void JsonReader::fail_at(Reason reason, uint64_t position, std::string_view text) const {
    throw_bad_file(file_, reason, position, text);
}

void JsonReader::skip_space() {
    while (here() == ' ' || here() == '\t' || here() == '\n' || here() == '\r') ++at_;
}

void JsonReader::open(char bracket, std::string_view what) {
    skip_space();
    if (here() != bracket) {
        fail_here(Reason::format, format_text("invalid JSON: {} must begin with '{}'", what, bracket));
    }
    if (depth_ == k_deepest) {
        fail_here(Reason::format, format_text("JSON nested deeper than {} levels", k_deepest));
    }
    in_object_[depth_] = bracket == '{';
    is_first_[depth_] = true;
    ++depth_;
    ++at_;
}

// Steps to the next member or element. If there is none, reads the closing bracket and returns false.
bool JsonReader::next(char closing) {
    skip_space();
    bool& is_first = is_first_[depth_ - 1];
    if (here() == closing) {
        ++at_;
        --depth_;
        return false;
    }
    if (!is_first) {
        if (here() != ',')
            fail_here(Reason::format, format_text("invalid JSON: ',' or '{}' expected", closing));
        ++at_;
        skip_space();
    }
    is_first = false;
    return true;
}

void JsonReader::begin_object(std::string_view what) {
    open('{', what);
}

bool JsonReader::next_member(std::string& name) {
    if (!next('}')) return false;
    name.clear();
    read_string(&name);
    skip_space();
    if (here() != ':') fail_here(Reason::format, "invalid JSON: ':' expected");
    ++at_;
    return true;
}

void JsonReader::begin_array(std::string_view what) {
    open('[', what);
}

bool JsonReader::next_element() {
    return next(']');
}

std::string JsonReader::string(std::string_view what) {
    skip_space();
    if (here() != '"') fail_here(Reason::format, format_text("{} must be a string", what));
    std::string out;
    read_string(&out);
    return out;
}

uint64_t JsonReader::whole_number(std::string_view what, Reason if_negative) {
    skip_space();
    const size_t begin = at_;
    if (!is_digit(here()) && here() != '-')
        fail_here(Reason::format, format_text("{} must be a number", what));
    skip_number();
    const std::string_view number = text_.substr(begin, at_ - begin);
    const std::string_view shown = number.substr(0, 40);
    if (number.find_first_of(".eE") != std::string_view::npos) {
        fail_at(Reason::format, origin_ + begin,
                format_text("{} is {}, it must be a whole number", what, shown));
    }
    if (number[0] == '-')
        fail_at(if_negative, origin_ + begin, format_text("{} is negative: {}", what, shown));
    const std::optional<uint64_t> value = parse_digits(number);
    if (!value) fail_at(Reason::format, origin_ + begin, format_text("{} is too large: {}", what, shown));
    return *value;
}

std::optional<uint64_t> JsonReader::optional_whole_number() {
    skip_space();
    const size_t begin = at_;
    skip_value();
    return parse_digits(text_.substr(begin, at_ - begin));
}

void JsonReader::skip_value() {
    const size_t depth = depth_;
    std::string name;
    skip_scalar_or_open();
    while (depth_ > depth) {
        const bool more_items = in_object_[depth_ - 1] ? next_member(name) : next_element();
        if (more_items) skip_scalar_or_open();
    }
}

void JsonReader::end_of_text(bool only_spaces) {
    if (only_spaces) {
        while (here() == ' ') ++at_;
    } else {
        skip_space();
    }
    if (more()) fail_here(Reason::format, "invalid JSON: unexpected bytes after the end");
}

void JsonReader::skip_scalar_or_open() {
    skip_space();
    const char c = here();
    if (c == '{' || c == '[') {
        open(c, "a value");
    } else if (c == '"') {
        read_string(nullptr);
    } else if (c == '-' || is_digit(c)) {
        skip_number();
    } else {
        for (const std::string_view word : {"true", "false", "null"}) {
            if (!text_.substr(at_).starts_with(word)) continue;
            at_ += word.size();
            return;
        }
        fail_here(Reason::format, "invalid JSON: a value expected");
    }
}

// -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
void JsonReader::skip_number() {
    const auto digits = [&] {
        if (!is_digit(here())) fail_here(Reason::format, "invalid JSON: a digit expected");
        while (is_digit(here())) ++at_;
    };
    if (here() == '-') ++at_;
    if (here() == '0') {
        ++at_;
        if (is_digit(here())) fail_here(Reason::format, "invalid JSON: a number with a leading zero");
    } else {
        digits();
    }
    if (here() == '.') {
        ++at_;
        digits();
    }
    if (here() == 'e' || here() == 'E') {
        ++at_;
        if (here() == '+' || here() == '-') ++at_;
        digits();
    }
}

// With a null `out` the string is checked and dropped.
void JsonReader::read_string(std::string* out) {
    if (here() != '"') fail_here(Reason::format, "invalid JSON: a string expected");
    ++at_;
    while (here() != '"') {
        if (!more()) fail_here(Reason::format, "invalid JSON: a string without an end");
        if (here() == '\\') {
            read_escape(out);
            continue;
        }
        if (static_cast<unsigned char>(here()) < 0x20) {
            fail_here(Reason::format, "invalid JSON: a control character in a string");
        }
        const size_t length = utf8_sequence_length(text_.substr(at_));
        if (length == 0) fail_here(Reason::format, "invalid JSON: a string is not UTF-8");
        if (out != nullptr) out->append(text_, at_, length);
        at_ += length;
    }
    ++at_;
}

void JsonReader::read_escape(std::string* out) {
    constexpr std::string_view k_letters = "\"\\/bfnrt";
    constexpr std::string_view k_meanings = "\"\\/\b\f\n\r\t";
    ++at_;
    const char letter = here();
    uint32_t code = 0;
    if (letter == 'u') {
        ++at_;
        code = read_hex4();
        if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
            at_ += 2;
            const uint32_t low = read_hex4();
            if (low < 0xDC00 || low > 0xDFFF) fail_here(Reason::format, "invalid JSON: a lone surrogate");
            code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
        }
        if (code >= 0xD800 && code < 0xE000) fail_here(Reason::format, "invalid JSON: a lone surrogate");
    } else {
        const size_t index = more() ? k_letters.find(letter) : std::string_view::npos;
        if (index == std::string_view::npos) fail_here(Reason::format, "invalid JSON: an unknown escape");
        ++at_;
        code = static_cast<unsigned char>(k_meanings[index]);
    }
    if (out != nullptr) append_utf8(code, *out);
}

uint32_t JsonReader::read_hex4() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
        const char c = here();
        const char lower = static_cast<char>(c | 0x20);
        uint32_t digit = 0;
        if (is_digit(c)) {
            digit = static_cast<uint32_t>(c - '0');
        } else if (lower >= 'a' && lower <= 'f') {
            digit = static_cast<uint32_t>(lower - 'a' + 10);
        } else {
            fail_here(Reason::format, "invalid JSON: four hexadecimal digits expected after \\u");
        }
        code = code * 16 + digit;
        ++at_;
    }
    return code;
}

}  // namespace minim::checkpoint
