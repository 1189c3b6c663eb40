#include "constraint/regex.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"

namespace minim::constraint {
namespace {

constexpr int k_most_open = 100;

CodePoints digits() {
    return CodePoints().add('0', '9');
}

CodePoints word_characters() {
    return digits().add('A', 'Z').add('a', 'z').add('_');
}

CodePoints white_space() {
    return CodePoints()
        .add('\t', '\r')
        .add(' ')
        .add(0xA0)
        .add(0x1680)
        .add(0x2000, 0x200A)
        .add(0x2028, 0x2029)
        .add(0x202F)
        .add(0x205F)
        .add(0x3000)
        .add(0xFEFF);
}

CodePoints line_ends() {
    return CodePoints().add('\n').add('\r').add(0x2028, 0x2029);
}

struct Node {
    enum class Kind : uint8_t { characters, sequence, choice, repeat, text_start, text_end };
    Kind kind;
    CodePoints set{};           // characters
    std::vector<Node> nodes{};  // of sequence, choice, repeat
    int64_t least = 0;          // repeat
    int64_t most = 0;           // -1: no end
};

class Parser {
  public:
    explicit Parser(std::string_view pattern) : pattern_(pattern) {}

    Node parse() {
        Node node = choice();
        if (at_ != pattern_.size()) fail_at(Status::invalid, "a ')' that closes nothing");
        return node;
    }

  private:
    Node choice() {
        Node node{.kind = Node::Kind::choice};
        do node.nodes.push_back(sequence());
        while (take('|'));
        return node;
    }

    Node sequence() {
        Node node{.kind = Node::Kind::sequence};
        while (at_ < pattern_.size() && pattern_[at_] != '|' && pattern_[at_] != ')')
            node.nodes.push_back(repeated(atom()));
        return node;
    }

    Node repeated(Node node) {
        int64_t least = 0;
        int64_t most = -1;
        if (take('+')) {
            least = 1;
        } else if (take('?')) {
            most = 1;
        } else if (!take('*') && !take_counts(least, most)) {
            return node;
        }
        take('?');  // which of several matches is found makes no difference to what fits
        Node repeat{.kind = Node::Kind::repeat, .least = least, .most = most};
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
                return true;
            }
        }
        at_ = start;
        return false;
    }

    std::optional<int64_t> number() {
        std::optional<int64_t> value;
        while (at_ < pattern_.size() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
            value = std::min<int64_t>(value.value_or(0) * 10 + (pattern_[at_] - '0'), k_most_repeats + 1);
            ++at_;
        }
        return value;
    }

    Node atom() {
        const char c = pattern_[at_];
        switch (c) {
            case '(':
                return group();
            case '[':
                return characters(bracket());
            case '.':
                ++at_;
                return characters(line_ends().complement());
            case '^':
                ++at_;
                return {.kind = Node::Kind::text_start};
            case '$':
                ++at_;
                return {.kind = Node::Kind::text_end};
            case '\\':
                return characters(escape(false));
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
        return characters(CodePoints().add(character()));
    }

    static Node characters(CodePoints set) { return {.kind = Node::Kind::characters, .set = std::move(set)}; }

    Node group() {
        ++at_;
        if (++n_open_ > k_most_open)
            fail_at(Status::unsupported, "more than {} groups in each other", k_most_open);
        if (take('?') && !take(':')) skip_name();
        Node node = choice();
        if (!take(')')) fail_at(Status::invalid, "a '(' that is not closed");
        --n_open_;
        return node;
    }

    void skip_name() {
        const bool is_name =
            take('<') && at_ < pattern_.size() && pattern_[at_] != '=' && pattern_[at_] != '!';
        if (!is_name) fail_at(Status::unsupported, "look-around or flags");
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
        return is_negated ? set.complement() : set;
    }

    // With whether it is a single character.
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
                return digits();
            case 'D':
                return digits().complement();
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
            default:
                if (static_cast<unsigned char>(c) >= 0x80) {
                    --at_;
                    return CodePoints().add(character());
                }
                if (!word_characters().contains(static_cast<unsigned char>(c)))
                    return CodePoints().add(static_cast<unsigned char>(c));
        }
        at_ -= 2;
        fail_at(Status::unsupported, "'\\{}'", c);
    }

    // \uD83D\uDE00 and \u{1F600} too.
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
        if (step.state != Utf8State::complete) fail_at(Status::invalid, "bytes that are no UTF-8");
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
        fail(status, "the regular expression '{}' has {} at byte {}", pattern_,
             format_text(what, std::forward<Args>(args)...), at_);
    }

    std::string_view pattern_;
    size_t at_ = 0;
    int n_open_ = 0;
};

// Turns the tree into parts of the grammar. ^ and $ stand for no text of their own, so they can be kept only
// where nothing is before or behind them.
class Writer {
  public:
    Writer(Grammar& grammar, std::string_view pattern, Match match, const Spelling& spelling)
        : grammar_(grammar),
          pattern_(pattern),
          spelling_(spelling),
          outside_(match == Match::anywhere ? grammar.repeat(spelling(CodePoints::all()), 0, -1)
                                            : grammar.empty()) {}

    Part write(const Node& node) { return write(node, {true, true}); }

  private:
    // Whether the text begins or ends with the part, after what is outside the match.
    struct Edges {
        bool start = false;
        bool end = false;
    };

    Part write(const Node& node, Edges edges) {
        switch (node.kind) {
            case Node::Kind::choice: {
                std::vector<Part> parts;
                for (const Node& alternative : node.nodes) parts.push_back(write(alternative, edges));
                return grammar_.choice(std::move(parts));
            }
            case Node::Kind::sequence:
                return write_sequence(node.nodes, edges);
            case Node::Kind::characters:
                return within(edges, spelling_(node.set));
            case Node::Kind::repeat:
                return within(edges, grammar_.repeat(write(node.nodes[0], {}), node.least, node.most));
            case Node::Kind::text_start:
            case Node::Kind::text_end:
                break;
        }
        fail(Status::unsupported, "the regular expression '{}' has a '{}' with text on both sides", pattern_,
             node.kind == Node::Kind::text_start ? '^' : '$');
    }

    Part write_sequence(std::span<const Node> nodes, Edges edges) {
        if (edges.start && !nodes.empty() && nodes.front().kind == Node::Kind::text_start) {
            nodes = nodes.subspan(1);
            edges.start = false;
        }
        if (edges.end && !nodes.empty() && nodes.back().kind == Node::Kind::text_end) {
            nodes = nodes.first(nodes.size() - 1);
            edges.end = false;
        }
        if (nodes.empty()) return within(edges, grammar_.empty());
        std::vector<Part> parts;
        for (size_t i = 0; i < nodes.size(); ++i) {
            const bool is_first = i == 0;
            const bool is_last = i + 1 == nodes.size();
            parts.push_back(write(nodes[i], {edges.start && is_first, edges.end && is_last}));
        }
        return grammar_.sequence(std::move(parts));
    }

    Part within(Edges edges, Part part) {
        return grammar_.sequence(
            {edges.start ? outside_ : grammar_.empty(), part, edges.end ? outside_ : grammar_.empty()});
    }

    Grammar& grammar_;
    std::string_view pattern_;
    const Spelling& spelling_;
    Part outside_;
};

}  // namespace

Part regex(Grammar& grammar, std::string_view pattern, Match match, const Spelling& spelling) {
    const Node tree = Parser(pattern).parse();
    return Writer(grammar, pattern, match, spelling).write(tree);
}

Spelling utf8_spelling(Grammar& grammar) {
    return [&grammar](const CodePoints& set) { return utf8(grammar, set); };
}

Grammar grammar_of_regex(std::string_view pattern, Match match) {
    Grammar grammar;
    grammar.start_with(regex(grammar, pattern, match, utf8_spelling(grammar)));
    return grammar;
}

}  // namespace minim::constraint
