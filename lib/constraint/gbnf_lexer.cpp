// SPDX-License-Identifier: Apache-2.0
#include "constraint/gbnf_lexer.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "base/utf8.h"
#include "constraint/grammar.h"

namespace minim::constraint {
namespace {

using Kind = GbnfSymbol::Kind;

constexpr size_t k_max_bytes = size_t{4} << 20;

bool is_digit(char c) noexcept {
    return c >= '0' && c <= '9';
}

bool is_name(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '-' || c == '_';
}

class Lexer {
  public:
    explicit Lexer(std::string_view text) : text_(text) {}

    std::vector<GbnfSymbol> read() {
        check_text();
        for (skip_space(); at_ < text_.size(); skip_space()) add_symbol();
        add(Kind::end);
        split_dotted_names();
        return std::move(symbols_);
    }

  private:
    template <typename... Args>
    [[noreturn]] void fail_here(fmt::format_string<Args...> text, Args&&... args) const {
        fail_in_grammar(Status::invalid, line_, text, std::forward<Args>(args)...);
    }

    // Checks the size and the encoding of the whole text, so that the other functions need not.
    void check_text() {
        if (text_.size() > k_max_bytes) {
            fail(Status::unsupported, "a grammar of {} bytes; at most {} are supported", text_.size(),
                 k_max_bytes);
        }
        int64_t line = 1;
        for (size_t at = 0; at < text_.size();) {
            const Utf8Step step = next_utf8(text_.substr(at));
            if (step.state != Utf8State::complete)
                fail_in_grammar(Status::invalid, line, "byte {} of the grammar is not valid UTF-8", at);
            if (step.code_point == '\n') ++line;
            at += step.length;
        }
        if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark
    }

    char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
    bool is_next(std::string_view text) const { return text_.substr(at_).starts_with(text); }
    bool take(char c) {
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }

    GbnfSymbol& add(Kind kind) { return symbols_.emplace_back(GbnfSymbol{.kind = kind, .line = line_}); }

    void skip_space() {
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (c == '\n') ++line_;
            if (c == '#') {
                at_ = std::min(text_.find('\n', at_), text_.size());
            } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
                ++at_;
            } else {
                return;
            }
        }
    }

    void add_symbol() {
        const char c = peek();
        if (is_name(c) && !is_next("->")) return add_name();
        if (is_next("::=")) {
            at_ += 3;
            add(Kind::definition);
            return;
        }
        switch (c) {
            case '"':
                return add_literal();
            case '[':
                return add_class();
            case '<':
                return add_token();
            case '{':
                return add_counts();
            case '.':
                ++at_;
                add(Kind::characters).set = CodePoints::all();
                return;
            case '|':
                ++at_;
                add(Kind::bar);
                return;
            case '(':
                if (peek(1) == '=' || peek(1) == '?')
                    fail_here("'({}' begins a look-ahead or an option, which are not supported", peek(1));
                ++at_;
                add(Kind::open);
                return;
            case ')':
                ++at_;
                add(Kind::close);
                return;
            case '*':
            case '+':
            case '?': {
                ++at_;
                GbnfSymbol& repeat = add(Kind::repeat);
                repeat.least = c == '+' ? 1 : 0;
                repeat.most = c == '?' ? 1 : -1;
                return;
            }
            default:
                fail_other();
        }
    }

    // Names what other notations write with this character.
    [[noreturn]] void fail_other() const {
        const char c = peek();
        if (c == ':' || c == '=' || is_next("->"))
            fail_here("'{}' does not define a rule; write 'name ::= ...'",
                      is_next("->") ? "->" : text_.substr(at_, 1));
        if (c == '/')
            fail_here(
                "'/' begins a comment or an expression of other notations; write '# comment', or [a-z] and "
                "the like");
        if (c == '\'') fail_here("a literal is written between double quotes, not single ones");
        if (c == '!') fail_here("'!' (any token but one) is not supported");
        if (c == '%') fail_here("directives, as '%ignore' of Lark, are not supported");
        if (c == ';' || c == ',')
            fail_here(
                "'{}' has no meaning in GBNF: a rule ends where the next one begins, and parts follow each "
                "other",
                c);
        const Utf8Step step = next_utf8(text_.substr(at_));
        fail_here("'{}' is not part of the notation", text_.substr(at_, step.length));
    }

    // A name may have points between its parts: a rule of this name must be defined (split_dotted_names).
    void add_name() {
        const size_t begin = at_;
        while (is_name(peek()) || (peek() == '.' && is_name(peek(1)))) ++at_;
        add(Kind::name).text = text_.substr(begin, at_ - begin);
    }

    void add_literal() {
        GbnfSymbol literal{.kind = Kind::literal, .line = line_};
        ++at_;
        while (!take('"')) append_utf8(character('"', literal.line), literal.text);
        symbols_.push_back(std::move(literal));
    }

    void add_class() {
        GbnfSymbol characters{.kind = Kind::characters, .line = line_};
        ++at_;
        const bool is_negated = take('^');
        if (peek() == ']') {
            fail_here(
                "a class of characters without any; write \\] for the character ']', and '.' for any "
                "character");
        }
        CodePoints set;
        while (!take(']')) {
            const char32_t first = character(']', characters.line);
            char32_t last = first;
            if (peek() == '-' && peek(1) != ']') {
                ++at_;
                last = character(']', characters.line);
            }
            if (last < first)
                fail_here("the range U+{:04X}-U+{:04X} goes down", uint32_t{first}, uint32_t{last});
            set.add(first, last);
        }
        characters.set = is_negated ? set.complement() : std::move(set);
        symbols_.push_back(std::move(characters));
    }

    // Reads one character, written as such or as an escape, of what began on line `opened`.
    char32_t character(char closer, int64_t opened) {
        const bool is_escape = take('\\');
        if (at_ == text_.size()) {
            fail_in_grammar(Status::invalid, opened, "a {} is not closed by '{}'",
                            closer == ']' ? "class of characters" : "literal", closer);
        }
        if (is_escape) return escape(closer);
        const Utf8Step step = next_utf8(text_.substr(at_));
        at_ += step.length;
        if (step.code_point == '\n') ++line_;
        return step.code_point;
    }

    char32_t escape(char closer) {
        const char c = text_[at_++];
        constexpr std::string_view k_themselves = "\\\"'[]^-/.?*+(){}|$<>";
        constexpr std::string_view k_letters = "nrtabefv";
        constexpr std::string_view k_values = "\n\r\t\a\b\x1B\f\v";
        if (k_themselves.find(c) != std::string_view::npos) return static_cast<uint8_t>(c);
        if (const size_t letter = k_letters.find(c); letter != std::string_view::npos)
            return static_cast<uint8_t>(k_values[letter]);
        if (c == '0') return 0;
        if (c == 'x') return hexadecimal(2);
        if (c == 'u') return utf16_unit(closer);
        if (c == 'U') {
            const char32_t value = hexadecimal(8);
            if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
                fail_here("\\U{:08X} is not a character", uint32_t{value});
            return value;
        }
        if (c == 'd' || c == 'w' || c == 's')
            fail_here("\\{} is not an escape of GBNF; write [0-9], [a-zA-Z0-9_] or [ \\t\\n]", c);
        --at_;
        fail_here("'\\{}' is not an escape of GBNF", text_.substr(at_, next_utf8(text_.substr(at_)).length));
    }

    // \uXXXX. Two of them are one character beyond U+FFFF if they are a pair of surrogates, as in JSON. A class may have
    // a surrogate alone as the end of a range.
    char32_t utf16_unit(char closer) {
        const char32_t first = hexadecimal(4);
        if (first >= 0xD800 && first <= 0xDBFF && text_.substr(at_).starts_with("\\u")) {
            at_ += 2;
            const char32_t second = hexadecimal(4);
            if (second >= 0xDC00 && second <= 0xDFFF)
                return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            at_ -= 6;
        }
        if (closer != ']' && first >= 0xD800 && first <= 0xDFFF)
            fail_here("\\u{:04X} is one half of a surrogate pair, and not a character", uint32_t{first});
        return first;
    }

    char32_t hexadecimal(int n_digits) {
        char32_t value = 0;
        for (int i = 0; i < n_digits; ++i) {
            const char c = peek();
            const bool is_letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
            if (!is_digit(c) && !is_letter)
                fail_here("an escape of {} hexadecimal digits has only {}", n_digits, i);
            value = value << 4 | static_cast<char32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
            ++at_;
        }
        return value;
    }

    // <name of an added token> or <[id]>.
    void add_token() {
        const size_t begin = ++at_;
        while (at_ < text_.size() && peek() != '>' && peek() != '\n') ++at_;
        if (peek() != '>') fail_here("a token is not closed by '>'");
        add(Kind::token).text = text_.substr(begin, at_++ - begin);
    }

    // {3}, {3,}, {3,5} or {,5}
    void add_counts() {
        ++at_;
        const auto space = [&] {
            while (peek() == ' ') ++at_;
        };
        space();
        const auto least = number();
        space();
        auto most = least;
        const bool has_comma = take(',');
        if (has_comma) {
            space();
            most = number();
            space();
        }
        if (!take('}') || (!least && !most))
            fail_here("a count is written {{m}}, {{m,}} or {{m,n}} with decimal numbers");
        GbnfSymbol& counts = add(Kind::repeat);
        counts.least = least.value_or(0);
        counts.most = most.value_or(-1);
        if (most && *most < counts.least) fail_here("the count {{{},{}}} goes down", counts.least, *most);
        if (std::max(counts.least, counts.most) > k_max_counted) {
            fail_in_grammar(Status::unsupported, line_, "a count above {}, the largest that is supported",
                            k_max_counted);
        }
    }

    std::optional<int64_t> number() {
        std::optional<int64_t> value;
        for (; is_digit(peek()); ++at_)
            value = std::min<int64_t>(value.value_or(0) * 10 + (peek() - '0'), k_max_counted + 1);
        return value;
    }

    // "a.b" is one name if a rule has it, as in xgrammar. Otherwise its points are any characters, as in llama.cpp.
    void split_dotted_names() {
        std::unordered_set<std::string_view> defined;
        for (size_t i = 0; i + 1 < symbols_.size(); ++i)
            if (symbols_[i].kind == Kind::name && symbols_[i + 1].kind == Kind::definition)
                defined.insert(symbols_[i].text);
        const auto is_split = [&](const GbnfSymbol& symbol) {
            return symbol.kind == Kind::name && symbol.text.find('.') != std::string::npos &&
                   !defined.contains(symbol.text);
        };
        if (std::ranges::none_of(symbols_, is_split)) return;
        std::vector<GbnfSymbol> split;
        for (const GbnfSymbol& symbol : symbols_) {
            if (!is_split(symbol)) {
                split.push_back(symbol);
                continue;
            }
            for (size_t begin = 0; begin <= symbol.text.size();) {
                const size_t end = std::min(symbol.text.find('.', begin), symbol.text.size());
                if (begin > 0) {
                    split.push_back(
                        {.kind = Kind::characters, .line = symbol.line, .set = CodePoints::all()});
                }
                split.push_back({.kind = Kind::name,
                                 .line = symbol.line,
                                 .text = symbol.text.substr(begin, end - begin)});
                begin = end + 1;
            }
        }
        symbols_ = std::move(split);
    }

    std::string_view text_;
    size_t at_ = 0;
    int64_t line_ = 1;
    std::vector<GbnfSymbol> symbols_;
};

}  // namespace

std::vector<GbnfSymbol> read_gbnf_symbols(std::string_view text) {
    return Lexer(text).read();
}

}  // namespace minim::constraint
