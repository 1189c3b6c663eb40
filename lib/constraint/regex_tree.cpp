// SPDX-License-Identifier: Apache-2.0
// One long file: a recursive-descent parser whose functions call each other.
#include "constraint/regex_tree.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "base/utf8.h"
#include "constraint/character_sets.h"
#include "constraint/grammar.h"

namespace minim::constraint {
namespace {

constexpr int k_max_open = 100;

class Parser {
  public:
    Parser(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

    RegexNode parse() {
        RegexNode node = choice();
        if (at_ != pattern_.size()) fail_at(Status::invalid, "a ')' that closes nothing");
        return node;
    }

  private:
    struct Flags {
        bool ignores_case = false;   // i
        bool is_multi_line = false;  // m: ^ and $ at line ends too
        bool is_dot_all = false;     // s: '.' is any character
    };

    // Flags that are set within a choice apply up to its end.
    RegexNode choice() {
        const Flags before = flags_;
        RegexNode node{.kind = RegexNode::Kind::choice};
        do node.nodes.push_back(sequence());
        while (take('|'));
        flags_ = before;
        return node;
    }

    RegexNode sequence() {
        RegexNode node{.kind = RegexNode::Kind::sequence};
        while (at_ < pattern_.size() && pattern_[at_] != '|' && pattern_[at_] != ')')
            node.nodes.push_back(repeated(atom()));
        return node;
    }

    RegexNode repeated(RegexNode node) {
        int64_t least = 0;
        int64_t most = -1;
        if (take('+')) {
            least = 1;
        } else if (take('?')) {
            most = 1;
        } else if (!take('*') && !take_counts(least, most)) {
            return node;
        }
        take('?');  // a lazy count accepts the same texts
        RegexNode repeat{.kind = RegexNode::Kind::repeat, .least = least, .most = most};
        repeat.nodes.push_back(std::move(node));
        return repeat;
    }

    // {3}, {3,} or {3,5}; braces around anything else are text, as in browsers.
    bool take_counts(int64_t& least, int64_t& most) {
        if (at_ >= pattern_.size() || pattern_[at_] != '{') return false;
        const size_t start = at_++;
        const auto first = number();
        if (first) {
            least = most = *first;
            if (take(',')) most = number().value_or(-1);
            if (take('}')) {
                if (most >= 0 && most < least) fail_at(Status::invalid, "a count that goes down");
                if (std::max(least, most) > k_max_repeats)
                    fail_at(Status::unsupported, "a count above {}", k_max_repeats);
                return true;
            }
        }
        at_ = start;
        return false;
    }

    std::optional<int64_t> number() {
        std::optional<int64_t> value;
        while (at_ < pattern_.size() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
            value = std::min<int64_t>(value.value_or(0) * 10 + (pattern_[at_] - '0'), 10 * k_max_repeats);
            ++at_;
        }
        return value;
    }

    RegexNode atom() {
        const char c = pattern_[at_];
        switch (c) {
            case '(':
                return group();
            case '[':
                return characters_node(bracket());
            case '.':
                ++at_;
                return characters_node(flags_.is_dot_all ? CodePoints::all() : line_ends().complement());
            case '^':
                ++at_;
                return line_edge(RegexNode::Kind::text_start);
            case '$':
                ++at_;
                return line_edge(RegexNode::Kind::text_end);
            case '\\':
                return escaped_atom();
            case '*':
            case '+':
            case '?':
                fail_at(Status::invalid, "a '{}' behind nothing", c);
            default:
                break;
        }
        int64_t least = 0;
        int64_t most = 0;
        if (take_counts(least, most)) fail_at(Status::invalid, "a count behind nothing");
        return characters_node(in_both_cases(CodePoints().add(character())));
    }

    CodePoints in_both_cases(CodePoints set) const {
        return flags_.ignores_case ? with_both_cases(set) : set;
    }

    RegexNode line_edge(RegexNode::Kind kind) const {
        RegexNode edge{.kind = kind};
        if (!flags_.is_multi_line) return edge;
        RegexNode look{.kind = RegexNode::Kind::look, .is_behind = kind == RegexNode::Kind::text_start};
        look.nodes.push_back(characters_node(line_ends()));
        return choice_node({std::move(edge), std::move(look)});
    }

    // Parses an escape outside brackets: '\' and the character behind it.
    RegexNode escaped_atom() {
        const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
        switch (c) {
            case 'b':
            case 'B':
                at_ += 2;
                return {.kind = RegexNode::Kind::word_edge, .is_negated = c == 'B'};
            case 'A':
                at_ += 2;
                return {.kind = RegexNode::Kind::text_start};
            case 'z':
            case 'Z':
                at_ += 2;
                return {.kind = RegexNode::Kind::text_end};
            default:
                break;
        }
        if (c == 'k' || (c >= '1' && c <= '9')) fail_at(Status::unsupported, "a back reference '\\{}'", c);
        return characters_node(in_both_cases(escape(false)));
    }

    RegexNode group() {
        ++at_;
        if (++n_open_ > k_max_open)
            fail_at(Status::unsupported, "more than {} groups in each other", k_max_open);
        RegexNode node;
        if (!take('?') || take(':')) {
            node = choice();
        } else if (pattern_.substr(at_).starts_with('#')) {
            at_ = std::min(pattern_.find(')', at_), pattern_.size());
        } else if (const auto look = take_look()) {
            node = *look;
            node.nodes.push_back(choice());
        } else if (pattern_.substr(at_).starts_with("P<") || pattern_.substr(at_).starts_with('<')) {
            skip_name();
            node = choice();
        } else {
            node = with_flags();
        }
        if (!take(')')) fail_at(Status::invalid, "a '(' that is not closed");
        --n_open_;
        return node;
    }

    std::optional<RegexNode> take_look() {
        for (const std::string_view opening : {"=", "!", "<=", "<!"}) {
            if (!pattern_.substr(at_).starts_with(opening)) continue;
            at_ += opening.size();
            return RegexNode{.kind = RegexNode::Kind::look,
                             .is_negated = opening.back() == '!',
                             .is_behind = opening.size() == 2};
        }
        return std::nullopt;
    }

    // Parses flags: (?i) applies up to the end of the group around it, (?i:...) to its own contents.
    RegexNode with_flags() {
        Flags flags = flags_;
        bool is_on = true;
        while (at_ < pattern_.size() && pattern_[at_] != ':' && pattern_[at_] != ')') {
            const char c = pattern_[at_];
            if (c == '-') {
                is_on = false;
            } else if (c == 'i') {
                flags.ignores_case = is_on;
            } else if (c == 'm') {
                flags.is_multi_line = is_on;
            } else if (c == 's') {
                flags.is_dot_all = is_on;
            } else if (c != 'u' && c != 'a') {
                fail_at(Status::unsupported, "a group '(?{}'", c);
            }
            ++at_;
        }
        const Flags before = std::exchange(flags_, flags);
        if (!take(':')) return sequence_node({});
        RegexNode node = choice();
        flags_ = before;
        return node;
    }

    // Skips the name of a group: <name> or P<name>.
    void skip_name() {
        const size_t end = pattern_.find('>', at_);
        if (end == std::string_view::npos) fail_at(Status::invalid, "a group's name that does not end");
        at_ = end + 1;
    }

    CodePoints bracket() {
        const size_t start = at_++;
        const bool is_negated = take('^');
        CodePoints set;
        while (true) {
            if (at_ >= pattern_.size()) {
                at_ = start;
                fail_at(Status::invalid, "a '[' that is not closed");
            }
            if (take(']')) break;
            const auto [first, is_one] = bracket_item();
            const bool is_range =
                at_ + 1 < pattern_.size() && pattern_[at_] == '-' && pattern_[at_ + 1] != ']';
            if (!is_range || !is_one) {
                set.add(first);
                continue;
            }
            ++at_;
            const auto [last, is_last_one] = bracket_item();
            if (!is_last_one) fail_at(Status::invalid, "a range that ends with a class");
            const char32_t from = first.ranges()[0].first;
            const char32_t to = last.ranges()[0].first;
            if (from > to) fail_at(Status::invalid, "a range that goes down");
            set.add(from, to);
        }
        set = in_both_cases(std::move(set));
        return is_negated ? set.complement() : set;
    }

    // Parses one item of a bracket. Returns its characters and whether it is a single character.
    std::pair<CodePoints, bool> bracket_item() {
        if (at_ >= pattern_.size()) fail_at(Status::invalid, "a '[' that is not closed");
        const CodePoints set = pattern_[at_] == '\\' ? escape(true) : CodePoints().add(character());
        const auto& ranges = set.ranges();
        return {set, ranges.size() == 1 && ranges[0].first == ranges[0].last};
    }

    CodePoints escape(bool in_bracket) {
        ++at_;
        if (at_ >= pattern_.size()) fail_at(Status::invalid, "a '\\' behind which nothing stands");
        const char c = pattern_[at_++];
        switch (c) {
            case 'd':
                return decimal_digits();
            case 'D':
                return decimal_digits().complement();
            case 'w':
                return word_characters();
            case 'W':
                return word_characters().complement();
            case 's':
                return white_space();
            case 'S':
                return white_space().complement();
            case 'n':
                return CodePoints().add('\n');
            case 'r':
                return CodePoints().add('\r');
            case 't':
                return CodePoints().add('\t');
            case 'f':
                return CodePoints().add('\f');
            case 'v':
                return CodePoints().add('\v');
            case '0':
                return CodePoints().add(char32_t{0});
            case 'x':
                return CodePoints().add(hexadecimal(2));
            case 'u':
                return CodePoints().add(unicode_escape());
            case 'b':
                if (in_bracket) return CodePoints().add('\b');
                break;
            case 'c':
                return CodePoints().add(control_character());
            case 'p':
            case 'P':
                return property(c == 'P');
            default:
                if (static_cast<unsigned char>(c) >= 0x80) {
                    --at_;
                    return CodePoints().add(character());
                }
                if (c == '_' || !word_characters().contains(static_cast<unsigned char>(c)))
                    return CodePoints().add(static_cast<unsigned char>(c));
        }
        at_ -= 2;
        fail_at(Status::unsupported, "'\\{}'", c);
    }

    // Parses the letter behind \c.
    char32_t control_character() {
        const char letter = at_ < pattern_.size() ? pattern_[at_] : '\0';
        const char lower = static_cast<char>(letter | 0x20);
        if (lower < 'a' || lower > 'z') fail_at(Status::invalid, "a '\\c' without a letter");
        ++at_;
        return static_cast<char32_t>(letter) & 0x1F;
    }

    // Parses what follows \p: {name}, or one letter.
    CodePoints property(bool is_negated) {
        const size_t start = at_;
        std::string_view name = pattern_.substr(at_, 1);
        if (name == "{") {
            const size_t end = pattern_.find('}', at_);
            if (end == std::string_view::npos) fail_at(Status::invalid, "a '\\p{{' without '}}'");
            name = pattern_.substr(at_ + 1, end - at_ - 1);
            at_ = end + 1;
        } else {
            at_ += name.size();
        }
        if (name.starts_with('^')) {
            is_negated = !is_negated;
            name.remove_prefix(1);
        }
        const auto set = characters_of_property(name);
        if (!set) {
            at_ = start;
            fail_at(Status::unsupported, "the property '{}', which is not known,", name);
        }
        return is_negated ? set->complement() : *set;
    }

    // Parses what follows \u; \uD83D\uDE00 and \u{1F600} too.
    char32_t unicode_escape() {
        if (take('{')) {
            const size_t end = pattern_.find('}', at_);
            if (end == std::string_view::npos || end == at_ || end - at_ > 6)
                fail_at(Status::invalid, "a '\\u{{' without one to six digits and '}}'");
            const char32_t value = hexadecimal(static_cast<int>(end - at_));
            ++at_;
            if (value > 0x10FFFF) fail_at(Status::invalid, "a code point beyond U+10FFFF");
            return value;
        }
        const char32_t high = hexadecimal(4);
        const bool is_pair = high >= 0xD800 && high < 0xDC00 && pattern_.substr(at_, 2) == "\\u";
        if (!is_pair) return high;
        at_ += 2;
        const char32_t low = hexadecimal(4);
        if (low < 0xDC00 || low > 0xDFFF) fail_at(Status::invalid, "half a surrogate pair");
        return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }

    char32_t hexadecimal(int n_digits) {
        char32_t value = 0;
        for (int i = 0; i < n_digits; ++i, ++at_) {
            const char c = at_ < pattern_.size() ? pattern_[at_] : '\0';
            const bool is_digit = c >= '0' && c <= '9';
            const char lower = static_cast<char>(c | 0x20);
            if (!is_digit && !(lower >= 'a' && lower <= 'f'))
                fail_at(Status::invalid, "an escape without its {} hexadecimal digits", n_digits);
            value = value * 16 + static_cast<char32_t>(is_digit ? c - '0' : lower - 'a' + 10);
        }
        return value;
    }

    char32_t character() {
        const Utf8Step step = next_utf8(pattern_.substr(at_));
        if (step.state != Utf8State::complete) fail_at(Status::invalid, "bytes that are not UTF-8");
        at_ += step.length;
        return step.code_point;
    }

    bool take(char c) {
        if (at_ >= pattern_.size() || pattern_[at_] != c) return false;
        ++at_;
        return true;
    }

    template <typename... Args>
    [[noreturn]] void fail_at(Status status, fmt::format_string<Args...> what, Args&&... args) const {
        fail(status, "{}{}the regular expression '{}' has {} at byte {}", where_, where_.empty() ? "" : ": ",
             pattern_, format_text(what, std::forward<Args>(args)...), at_);
    }

    std::string_view pattern_;
    std::string_view where_;
    size_t at_ = 0;
    Flags flags_;
    int n_open_ = 0;
};

}  // namespace

RegexNode parse_regex(std::string_view pattern, std::string_view where) {
    return Parser(pattern, where).parse();
}

RegexNode characters_node(CodePoints set) {
    return {.kind = RegexNode::Kind::characters, .set = std::move(set)};
}

RegexNode character_range_node(char32_t first, char32_t last) {
    return characters_node(CodePoints().add(first, last));
}

RegexNode text_node(std::string_view ascii) {
    std::vector<RegexNode> nodes;
    for (const char c : ascii)
        nodes.push_back(character_range_node(static_cast<uint8_t>(c), static_cast<uint8_t>(c)));
    return sequence_node(std::move(nodes));
}

RegexNode sequence_node(std::vector<RegexNode> nodes) {
    return {.kind = RegexNode::Kind::sequence, .nodes = std::move(nodes)};
}

RegexNode choice_node(std::vector<RegexNode> nodes) {
    return {.kind = RegexNode::Kind::choice, .nodes = std::move(nodes)};
}

RegexNode repeat_node(RegexNode node, int64_t least, int64_t most) {
    RegexNode repeat{.kind = RegexNode::Kind::repeat, .least = least, .most = most};
    repeat.nodes.push_back(std::move(node));
    return repeat;
}

RegexNode optional_node(RegexNode node) {
    return repeat_node(std::move(node), 0, 1);
}

}  // namespace minim::constraint
