// SPDX-License-Identifier: Apache-2.0
#include "chat/jinja_lexer.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/format_text.h"
#include "base/utf8.h"

namespace minim::chat::jinja {
namespace {

bool is_space(char c) {
    return is_python_space(static_cast<unsigned char>(c)) && static_cast<unsigned char>(c) < 0x80;
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Jinja's newline handling: every kind of newline becomes "\n", and one at the end of the file is removed.
std::string normalised(std::string_view source) {
    std::string out;
    out.reserve(source.size());
    for (size_t i = 0; i < source.size(); ++i) {
        if (source[i] != '\r') {
            out += source[i];
            continue;
        }
        out += '\n';
        if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
    if (out.ends_with('\n')) out.pop_back();
    return out;
}

constexpr std::string_view k_symbols[] = {
    "//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
    ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", ".", ",", ":", "|", ";",
};

class Lexer {
  public:
    explicit Lexer(std::string_view source) : source_(normalised(source)) {}

    std::vector<JinjaToken> run() {
        while (at_ < source_.size()) text_and_tag();
        add(Lexeme::end, "");
        return std::move(tokens_);
    }

  private:
    std::string_view rest() const { return std::string_view(source_).substr(at_); }

    void add(Lexeme kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

    void skip(size_t n) {
        line_ +=
            static_cast<size_t>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                           source_.begin() + static_cast<std::ptrdiff_t>(at_ + n), '\n'));
        at_ += n;
        if (n > 0) line_starts_ = source_[at_ - 1] == '\n';
    }

    void skip_space() {
        size_t n = 0;
        while (at_ + n < source_.size() && is_space(source_[at_ + n])) ++n;
        skip(n);
    }

    // Reads the next tag and the text before it, without the whitespace that the tag's whitespace control removes.
    void text_and_tag() {
        const size_t begin = at_;
        const bool line_started = line_starts_;
        size_t open = begin;
        while (open < source_.size() && !is_opening(open)) ++open;
        std::string text = source_.substr(begin, open - begin);
        const bool has_tag = open < source_.size();
        const char control = has_tag && open + 2 < source_.size() ? source_[open + 2] : '\0';
        if (has_tag && control == '-') {
            while (!text.empty() && is_space(text.back())) text.pop_back();
        } else if (has_tag && control != '+' && source_[open + 1] != '{') {
            strip_line_start(text, line_started);
        }
        if (!text.empty()) add(Lexeme::data, text);
        skip(open - begin);
        if (has_tag) tag(control);
    }

    bool is_opening(size_t at) const {
        return source_[at] == '{' && at + 1 < source_.size() &&
               (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#');
    }

    static void strip_line_start(std::string& text, bool line_started) {
        const size_t newline = text.rfind('\n');
        if (newline == std::string::npos && !line_started) return;
        const size_t start = newline == std::string::npos ? 0 : newline + 1;
        if (std::all_of(text.begin() + static_cast<std::ptrdiff_t>(start), text.end(), is_space))
            text.resize(start);
    }

    void tag(char control) {
        const char kind = source_[at_ + 1];
        const size_t begin_length = control == '-' || control == '+' ? 3 : 2;
        if (kind == '#') return comment(begin_length);
        if (kind == '%' && raw_block()) return;
        const bool block = kind == '%';
        add(block ? Lexeme::block_begin : Lexeme::variable_begin, "");
        skip(begin_length);
        inside(block);
    }

    void comment(size_t begin_length) {
        const size_t begin = at_ + begin_length;
        const size_t close = source_.find("#}", begin);
        if (close == std::string::npos) refuse_template(line_, "a comment that begins here has no end");
        const char before = close > begin ? source_[close - 1] : '\0';
        skip(close + 2 - at_);
        after_tag(before);
    }

    // Skips the whitespace after a block or comment that ends with this sign before its "%}" or "#}".
    void after_tag(char sign) {
        if (sign == '-') {
            skip_space();
        } else if (sign != '+' && rest().starts_with('\n')) {
            skip(1);
        }
    }

    // Reads "{% raw %}" and all up to its end. Returns false if the tag is not a raw block.
    bool raw_block() {
        size_t length = 0;
        const auto sign = keyword_tag(at_, "raw", length);
        if (!sign) return false;
        skip(length);
        if (*sign == '-') skip_space();
        const size_t begin = at_;
        for (size_t close = source_.find("{%", begin); close != std::string::npos;
             close = source_.find("{%", close + 2)) {
            const auto end_sign = keyword_tag(close, "endraw", length);
            if (!end_sign) continue;
            std::string text = source_.substr(begin, close - begin);
            if (source_[close + 2] == '-') {
                while (!text.empty() && is_space(text.back())) text.pop_back();
            } else if (source_[close + 2] != '+') {
                strip_line_start(text, line_starts_);
            }
            if (!text.empty()) add(Lexeme::data, text);
            skip(close + length - begin);
            after_tag(*end_sign);
            return true;
        }
        refuse_template(line_, "a raw block that begins here has no end");
    }

    // Returns the sign before "%}" ('\0' for none) of the tag at `at`, and sets `length` to the tag's; nothing if it is
    // not `{% word %}`.
    std::optional<char> keyword_tag(size_t at, std::string_view word, size_t& length) const {
        size_t i = at + 2;
        if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
        while (i < source_.size() && is_space(source_[i])) ++i;
        if (std::string_view(source_).substr(i, word.size()) != word) return std::nullopt;
        i += word.size();
        while (i < source_.size() && is_space(source_[i])) ++i;
        char sign = '\0';
        if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) sign = source_[i++];
        if (std::string_view(source_).substr(i, 2) != "%}") return std::nullopt;
        length = i + 2 - at;
        return sign;
    }

    void inside(bool block) {
        std::string nesting;
        for (;;) {
            skip_space();
            if (at_ >= source_.size()) refuse_template(line_, "a tag has no end");
            if (nesting.empty() && tag_end(block)) return;
            token(nesting);
        }
    }

    bool tag_end(bool block) {
        const std::string_view close = block ? "%}" : "}}";
        const std::string_view text = rest();
        const bool signed_end = (text[0] == '-' || (block && text[0] == '+')) && text.substr(1, 2) == close;
        if (!signed_end && !text.starts_with(close)) return false;
        add(block ? Lexeme::block_end : Lexeme::variable_end, "");
        const char sign = signed_end ? text[0] : '\0';
        skip(signed_end ? 3 : 2);
        if (block) {
            after_tag(sign);
        } else if (sign == '-') {
            skip_space();
        }
        return true;
    }

    void token(std::string& nesting) {
        const std::string_view text = rest();
        if (is_name_start(text[0])) {
            size_t n = 1;
            while (n < text.size() && (is_name_start(text[n]) || is_digit(text[n]))) ++n;
            add(Lexeme::name, std::string(text.substr(0, n)));
            return skip(n);
        }
        if (is_digit(text[0])) return number();
        if (text[0] == '"' || text[0] == '\'') return string();
        for (const std::string_view symbol : k_symbols) {
            if (!text.starts_with(symbol)) continue;
            balance(nesting, symbol);
            add(Lexeme::symbol, std::string(symbol));
            return skip(symbol.size());
        }
        refuse_template(line_, format_text("unexpected character '{}'", text[0]));
    }

    void balance(std::string& nesting, std::string_view symbol) {
        constexpr std::string_view k_open = "([{";
        constexpr std::string_view k_close = ")]}";
        if (const size_t open = k_open.find(symbol); open != std::string_view::npos) nesting += k_close[open];
        if (k_close.find(symbol) == std::string_view::npos) return;
        if (nesting.empty() || nesting.back() != symbol[0])
            refuse_template(line_, "unexpected '" + std::string(symbol) + "'");
        nesting.pop_back();
    }

    void number() {
        const std::string_view text = rest();
        size_t n = 0;
        const auto digits = [&] {
            while (n < text.size() &&
                   (is_digit(text[n]) || (text[n] == '_' && n + 1 < text.size() && is_digit(text[n + 1]))))
                ++n;
        };
        digits();
        bool real = false;
        if (n + 1 < text.size() && text[n] == '.' && is_digit(text[n + 1])) {
            real = true;
            ++n;
            digits();
        }
        if (n < text.size() && (text[n] == 'e' || text[n] == 'E')) {
            size_t power = n + 1;
            if (power < text.size() && (text[power] == '+' || text[power] == '-')) ++power;
            if (power < text.size() && is_digit(text[power])) {
                real = true;
                n = power;
                digits();
            }
        }
        if (n < text.size() && is_name_start(text[n])) refuse_template(line_, "a number of an unknown form");
        std::string plain(text.substr(0, n));
        plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
        add(real ? Lexeme::real : Lexeme::integer, std::move(plain));
        skip(n);
    }

    void string() {
        const std::string_view text = rest();
        std::string value;
        for (size_t i = 1; i < text.size(); ++i) {
            if (text[i] == text[0]) {
                add(Lexeme::string, std::move(value));
                return skip(i + 1);
            }
            if (text[i] == '\\' && i + 1 < text.size()) {
                i = escape(text, i + 1, value);
            } else {
                value += text[i];
            }
        }
        refuse_template(line_, "a string has no end");
    }

    // Reads one of Python's escapes, from `i` on, which is behind the backslash. Returns the place of its last character.
    size_t escape(std::string_view text, size_t i, std::string& value) {
        constexpr std::string_view k_letters = "abfnrtv\\'\"";
        constexpr std::string_view k_meanings = "\a\b\f\n\r\t\v\\'\"";
        if (text[i] == '\n') return i;
        if (const size_t at = k_letters.find(text[i]); at != std::string_view::npos) {
            value += k_meanings[at];
            return i;
        }
        const size_t n_hex = text[i] == 'x' ? 2 : text[i] == 'u' ? 4 : text[i] == 'U' ? 8 : 0;
        const bool octal = text[i] >= '0' && text[i] <= '7';
        if (n_hex == 0 && !octal) {
            if (text[i] == 'N') refuse_template(line_, "\\N{...} in a string is not supported");
            value += '\\';
            value += text[i];
            return i;
        }
        char32_t code_point = 0;
        size_t n = 0;
        const size_t first = octal ? i : i + 1;
        for (; n < (octal ? 3 : n_hex) && first + n < text.size(); ++n) {
            const char c = text[first + n];
            const int digit = is_digit(c)            ? c - '0'
                              : c >= 'a' && c <= 'f' ? c - 'a' + 10
                              : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                     : 99;
            if (digit >= (octal ? 8 : 16)) break;
            code_point = code_point * (octal ? 8U : 16U) + static_cast<char32_t>(digit);
        }
        const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
        if ((!octal && n < n_hex) || surrogate || code_point > 0x10FFFF)
            refuse_template(line_, "an escape in a string is malformed");
        append_utf8(code_point, value);
        return first + n - 1;
    }

    std::string source_;
    size_t at_ = 0;
    size_t line_ = 1;
    bool line_starts_ = true;
    std::vector<JinjaToken> tokens_;
};

}  // namespace

bool is_python_space(char32_t c) noexcept {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
           c == 0x3000;
}

void refuse_template(size_t line, std::string_view why) {
    fail(Status::unsupported, "the chat template, line {}: {}", line, why);
}

std::vector<JinjaToken> tokenize(std::string_view source) {
    return Lexer(source).run();
}

}  // namespace minim::chat::jinja
