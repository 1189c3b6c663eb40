// SPDX-License-Identifier: Apache-2.0
#include "constraint/gbnf.h"

#include <charconv>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "constraint/code_points.h"
#include "constraint/gbnf_lexer.h"

namespace minim::constraint {
namespace {

using Kind = GbnfSymbol::Kind;

constexpr int64_t k_max_open = 200;  // groups in groups, and repeats of repeats
constexpr int64_t k_max_rules = 50'000;

class Parser {
  public:
    Parser(std::vector<GbnfSymbol> symbols, const tokenizer::Tokenizer* tokenizer)
        : symbols_(std::move(symbols)), tokenizer_(tokenizer) {}

    Grammar parse() {
        declare_rules();
        while (here().kind != Kind::end) {
            if (!begins_rule()) fail_here("'name ::=' is expected, and not {}", shown(here()));
            rule_ = &rules_.at(here().text);
            at_ += 2;
            if (begins_rule() || here().kind == Kind::end)
                fail_here("it has no text; write \"\" for the empty one");
            const Part body = choice();
            if (here().kind == Kind::close) fail_here("a ')' that closes nothing");
            grammar_.define(rule_->id, body);
        }
        grammar_.start_with(rules_.at("root").id);
        return std::move(grammar_);
    }

  private:
    struct Rule {
        RuleId id;
        std::string_view name;
        int64_t line;
    };

    const GbnfSymbol& here() const { return symbols_[at_]; }
    bool begins_rule() const {
        return here().kind == Kind::name && symbols_[at_ + 1].kind == Kind::definition;
    }

    // Names the rule that is being read, if any.
    template <typename... Args>
    [[noreturn]] void fail_here(fmt::format_string<Args...> text, Args&&... args) const {
        const std::string what = format_text(text, std::forward<Args>(args)...);
        if (rule_ == nullptr) fail_in_grammar(Status::invalid, here().line, "{}", what);
        fail_in_grammar(Status::invalid, here().line, "rule '{}': {}", shortened(rule_->name), what);
    }

    static std::string shortened(std::string_view name) {
        constexpr size_t k_max_shown = 80;
        return name.size() <= k_max_shown ? std::string(name)
                                          : std::string(name.substr(0, k_max_shown)) + "...";
    }

    static std::string shown(const GbnfSymbol& symbol) {
        switch (symbol.kind) {
            case Kind::name:
                return format_text("'{}'", shortened(symbol.text));
            case Kind::definition:
                return "'::='";
            case Kind::literal:
                return "a literal";
            case Kind::characters:
                return "a class of characters";
            case Kind::token:
                return "a token";
            case Kind::bar:
                return "'|'";
            case Kind::open:
                return "'('";
            case Kind::close:
                return "')'";
            case Kind::repeat:
                return "a repetition";
            case Kind::end:
                return "the end";
        }
        return "";
    }

    void declare_rules() {
        for (size_t i = 0; i + 1 < symbols_.size(); ++i) {
            const GbnfSymbol& symbol = symbols_[i];
            if (symbol.kind != Kind::name || symbols_[i + 1].kind != Kind::definition) continue;
            const std::string_view name = symbol.text;
            const auto [place, is_new] = rules_.try_emplace(name, Rule{{}, name, symbol.line});
            if (!is_new) {
                fail_in_grammar(Status::invalid, symbol.line, "rule '{}' is already defined on line {}",
                                shortened(name), place->second.line);
            }
            if (std::ssize(rules_) > k_max_rules) {
                fail_in_grammar(Status::unsupported, symbol.line,
                                "rule '{}' is one more than the {} that are supported", shortened(name),
                                k_max_rules);
            }
            place->second.id = grammar_.declare(format_text("{} (line {})", shortened(name), symbol.line));
        }
        if (rules_.contains("root")) return;
        if (rules_.empty() && symbols_.size() > 1) fail_here("the grammar has no rule; write 'root ::= ...'");
        fail(Status::invalid, "grammar: there is no rule 'root', with which the answer begins");
    }

    Part choice() {
        std::vector<Part> parts = {sequence()};
        while (here().kind == Kind::bar) {
            ++at_;
            parts.push_back(sequence());
        }
        return grammar_.choice(std::move(parts));
    }

    Part sequence() {
        std::vector<Part> parts;
        while (true) {
            switch (here().kind) {
                case Kind::bar:
                case Kind::close:
                case Kind::end:
                    return grammar_.sequence(std::move(parts));
                case Kind::name:
                    if (begins_rule()) return grammar_.sequence(std::move(parts));
                    break;
                case Kind::definition:
                    fail_here("'::=' without the name of a rule before it");
                case Kind::repeat:
                    fail_here("a repetition of nothing");
                default:
                    break;
            }
            parts.push_back(repeated(element()));
        }
    }

    Part repeated(Part part) {
        for (int64_t n = 0; here().kind == Kind::repeat; ++n, ++at_) {
            if (n == k_max_open) fail_here("more than {} repetitions of one part", k_max_open);
            part = grammar_.counted(part, here().least, here().most, name_of_rule());
        }
        return part;
    }

    std::string name_of_rule() const { return grammar_.rules()[rule_->id.index].name; }

    Part element() {
        switch (here().kind) {
            case Kind::name: {
                const auto rule = rules_.find(here().text);
                if (rule == rules_.end()) fail_here("rule '{}' is not defined", shortened(here().text));
                ++at_;
                return grammar_.call(rule->second.id);
            }
            case Kind::literal:
                return grammar_.text(symbols_[at_++].text);
            case Kind::characters:
                return characters(symbols_[at_++].set);
            case Kind::token:
                return token();
            default:
                return group();
        }
    }

    Part group() {
        if (n_open_ == k_max_open) fail_here("more than {} groups within each other", k_max_open);
        ++n_open_;
        const size_t opening = at_++;
        const Part part = choice();
        if (here().kind != Kind::close) {
            at_ = opening;
            fail_here("a '(' is not closed");
        }
        ++at_;
        --n_open_;
        return part;
    }

    // Equal sets are one part: the automaton of `[a-z]` is made once, even if it is written often.
    Part characters(const CodePoints& set) {
        std::u32string key;
        for (const CodePoints::Range& range : set.ranges()) key.append({range.first, range.last});
        const auto [place, is_new] = classes_.try_emplace(std::move(key));
        if (is_new) place->second = utf8(grammar_, set);
        return place->second;
    }

    Part token() {
        const std::string_view text = here().text;
        std::optional<int32_t> id;
        if (tokenizer_ != nullptr && text.size() > 2 && text.front() == '[' && text.back() == ']') {
            int32_t number = -1;
            const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size() - 1, number);
            const bool is_whole = error == std::errc() && end == text.data() + text.size() - 1;
            if (is_whole && number >= 0 && number < tokenizer_->n_tokens()) id = number;
        } else if (tokenizer_ != nullptr) {
            id = tokenizer_->find(format_text("<{}>", text));
        }
        if (!id) fail_here("<{}> is not a token of the model", shortened(text));
        if (tokenizer::is_ordinary(tokenizer_->token_type(*id)))
            fail_here("<{}> is ordinary text; write it between double quotes", shortened(text));
        ++at_;
        return grammar_.token(*id);
    }

    std::vector<GbnfSymbol> symbols_;
    const tokenizer::Tokenizer* tokenizer_;
    size_t at_ = 0;
    int64_t n_open_ = 0;
    Grammar grammar_;
    std::unordered_map<std::string_view, Rule> rules_;  // by name
    const Rule* rule_ = nullptr;                        // being read
    std::unordered_map<std::u32string, Part> classes_;  // by ranges
};

}  // namespace

Grammar grammar_of_gbnf(std::string_view text, const tokenizer::Tokenizer* tokenizer) {
    return Parser(read_gbnf_symbols(text), tokenizer).parse();
}

}  // namespace minim::constraint
