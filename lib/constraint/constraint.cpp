// SPDX-License-Identifier: Apache-2.0
#include "constraint/constraint.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "chat/markup.h"
#include "constraint/open_elements.h"
#include "constraint/positions.h"

namespace minim::constraint {
namespace {

constexpr uint64_t k_max_kept_bytes = uint64_t{64} << 20;
constexpr int64_t k_newlines_after_reasoning = 2;

Grammar after_reasoning(Grammar grammar) {
    const Part newlines = grammar.repeat(grammar.byte_in(ByteSet().set('\n')), 0, k_newlines_after_reasoning);
    const Part answer = grammar.call(grammar.start());
    grammar.start_with(grammar.sequence({newlines, answer}));
    return grammar;
}

// Returns whether newlines may stand before the grammar's text: behind reasoning that the answer must have.
bool has_newlines(const ConstraintStart& start) {
    return start.starts_after && !start.reasons_from && !start.opens_with;
}

}  // namespace

Constraint::Constraint(Grammar grammar, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                       std::shared_ptr<const TokenTrie> trie, const ConstraintStart& start)
    : tokenizer_(std::move(tokenizer)),
      trie_(std::move(trie)),
      start_(start),
      element_mark_(grammar.compares_elements() ? tokenizer_->find(chat::k_m3.mark) : std::nullopt),
      automaton_(make_automaton(has_newlines(start) ? after_reasoning(std::move(grammar)) : grammar,
                                trie_->longest_token())),
      finder_(automaton_, *tokenizer_, *trie_) {
    if (start_.reasons_from && (begins_with(start_.reasons_from) || begins_with(start_.starts_after)))
        start_ = {};
}

// Returns whether a text of the grammar begins with a token.
bool Constraint::begins_with(std::optional<int32_t> token) const {
    Positions positions(automaton_);
    const int32_t start = positions.start_of(automaton_.start_rule);
    return std::ranges::any_of(automaton_.tokens, [&](const Automaton::TokenSymbol& symbol) {
        return symbol.token == token && positions.step(start, symbol.symbol) != Positions::k_dead;
    });
}

std::shared_ptr<const StateTokens> Constraint::state_tokens(int32_t state, int32_t count) const {
    std::vector<int32_t> kind = automaton_.kind_of(state, count, trie_->longest_token());
    const std::lock_guard lock(mutex_);
    const auto known = tokens_.find(kind);
    if (known != tokens_.end()) return known->second;

    auto tokens = std::make_shared<const StateTokens>(finder_.find(state, count));
    if (tokens_bytes_ + tokens->bytes() > k_max_kept_bytes) {
        tokens_.clear();
        tokens_bytes_ = 0;
    }
    tokens_.emplace(std::move(kind), tokens);
    tokens_bytes_ += tokens->bytes();
    return tokens;
}

bool Constraint::matches(std::string_view text) const {
    const auto text_of = [&](std::optional<int32_t> token) {
        return token ? tokenizer_->token_bytes(*token) : std::string_view();
    };
    const std::string_view first = text_of(start_.starts_after);
    if (element_mark_) {
        const size_t last = first.empty() ? std::string_view::npos : text.rfind(first);
        const size_t begin = last == std::string_view::npos ? 0 : last + first.size();
        if (!closes_its_elements(text.substr(begin), chat::k_m3.mark)) return false;
    }
    if (start_.reasons_from && !text.starts_with(text_of(start_.reasons_from)))
        return matches_form(text.substr(text.starts_with(first) ? first.size() : 0), {});
    if (!start_.opens_with) return matches_form(text, first);
    const size_t begin = text.find(first);
    if (begin == std::string_view::npos) return true;
    const size_t opening = text.find(text_of(start_.opens_with), begin + first.size());
    return opening == std::string_view::npos || matches_form(text.substr(opening), {});
}

// With an `opener`, the form may begin after any occurrence of it.
bool Constraint::matches_form(std::string_view text, std::string_view opener) const {
    struct Markup {
        int32_t symbol;
        std::string text;
    };
    std::vector<Markup> markup;
    for (const Automaton::TokenSymbol& token : automaton_.tokens)
        markup.push_back({token.symbol, std::string(tokenizer_->token_bytes(token.token))});
    Positions positions(automaton_);
    const int32_t start = positions.start_of(automaton_.start_rule);
    std::vector<int32_t> here;  // positions that the text up to a place may lead to
    std::map<size_t, std::vector<int32_t>>
        to_come;  // by the place after some markup: the positions that it leads to
    if (opener.empty()) here.push_back(start);
    for (size_t at = 0;; ++at) {
        if (const auto place = to_come.find(at); place != to_come.end()) {
            here.insert(here.end(), place->second.begin(), place->second.end());
            to_come.erase(place);
        }
        if (!opener.empty() && at >= opener.size() && text.substr(0, at).ends_with(opener))
            here.push_back(start);
        std::ranges::sort(here);
        here.erase(std::unique(here.begin(), here.end()), here.end());
        if (at == text.size()) break;
        if (here.empty() && to_come.empty() && opener.empty()) return false;

        for (const Markup& each : markup) {
            if (!text.substr(at).starts_with(each.text)) continue;
            for (const int32_t position : here) {
                const int32_t next = positions.step(position, each.symbol);
                if (next != Positions::k_dead) to_come[at + each.text.size()].push_back(next);
            }
        }
        for (int32_t& position : here) position = positions.read(position, text.substr(at, 1));
        std::erase(here, Positions::k_dead);
        if (positions.are_many() && here.size() == 1 && to_come.empty() && opener.empty())
            here[0] = positions.keep_only(here[0]);
    }
    return std::ranges::any_of(here, [&](int32_t position) { return positions.may_end(position); });
}

}  // namespace minim::constraint
