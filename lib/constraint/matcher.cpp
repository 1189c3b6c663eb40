// SPDX-License-Identifier: Apache-2.0
#include "constraint/matcher.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace minim::constraint {

Matcher::Matcher(std::shared_ptr<const Constraint> constraint, int64_t n_vocab,
                 std::vector<int32_t> end_tokens)
    : constraint_(std::move(constraint)),
      end_tokens_(std::move(end_tokens)),
      positions_(constraint_->automaton()),
      position_(positions_.start_of(constraint_->automaton().start_rule)),
      waits_for_start_(constraint_->starts_after().has_value()),
      has_started_(!waits_for_start_ && !constraint_->opens_with()),
      allowed_((static_cast<size_t>(n_vocab) + 63) / 64) {
    if (n_vocab < constraint_->trie().n_vocab())
        fail_internal("a constraint for {} tokens and {} logits", constraint_->trie().n_vocab(), n_vocab);
}

std::span<const uint64_t> Matcher::allowed() {
    if (allowed_is_known_) return allowed_;
    std::ranges::fill(allowed_, 0);
    // Places are sorted: those of one state and count follow each other.
    const auto all = positions_.places(position_);
    const std::vector<Positions::Place> places(all.begin(), all.end());
    for (size_t begin = 0, end = 0; begin < places.size(); begin = end) {
        while (end < places.size() && places[end].state == places[begin].state &&
               places[end].count == places[begin].count)
            ++end;
        allow_from(std::span(places).subspan(begin, end - begin));
    }
    for (const TokenTrie::Twin& twin : constraint_->trie().twins())
        if (is_allowed(twin.first)) allow(twin.other);
    for (const Automaton::TokenSymbol& token : constraint_->automaton().tokens)
        if (positions_.step(position_, token.symbol) != Positions::k_dead) allow(token.token);
    if (may_end())
        for (const int32_t token : end_tokens_) allow(token);
    allowed_is_known_ = true;
    return allowed_;
}

void Matcher::allow_from(std::span<const Positions::Place> places) {
    const auto tokens = constraint_->state_tokens(places[0].state, places[0].count);
    for (const int32_t token : tokens->few) allow(token);
    for (size_t word = 0; word < tokens->bits.size(); ++word) allowed_[word] |= tokens->bits[word];
    if (tokens->exits.empty()) return;
    const auto nodes = constraint_->trie().nodes();
    const int32_t position = positions_.after(places);
    for (const int32_t exit : tokens->exits) {
        try_tokens(constraint_->trie(), positions_, exit + 1, nodes[exit].end, position, path_,
                   [&](int32_t i, int32_t) {
                       const int32_t token = nodes[i].token;
                       if (token >= 0) allow(token);
                   });
    }
}

void Matcher::accept(int32_t token) {
    Progress progress{waits_for_start_, has_started_, position_};
    follow(progress, token);
    if (progress.position == Positions::k_dead)
        fail(Status::invalid, "token {} does not fit the constraint", token);
    waits_for_start_ = progress.waits_for_start;
    has_started_ = progress.has_started;
    if (progress.position == position_) return;
    allowed_is_known_ = false;
    position_ = positions_.are_many() ? positions_.keep_only(progress.position) : progress.position;
}

bool Matcher::fits(std::span<const int32_t> tokens) {
    Progress progress{waits_for_start_, has_started_, position_};
    for (const int32_t token : tokens) {
        follow(progress, token);
        if (progress.position == Positions::k_dead) return false;
    }
    return true;
}

void Matcher::follow(Progress& progress, int32_t token) {
    if (progress.waits_for_start) {
        progress.waits_for_start = token != constraint_->starts_after();
        progress.has_started = !progress.waits_for_start && !constraint_->opens_with();
        return;
    }
    if (!progress.has_started && token != constraint_->opens_with()) return;
    progress.has_started = true;
    progress.position = after_token(progress.position, token);
}

int32_t Matcher::after_token(int32_t position, int32_t token) {
    const Automaton& automaton = constraint_->automaton();
    const auto as_symbol = std::ranges::find(automaton.tokens, token, &Automaton::TokenSymbol::token);
    if (as_symbol != automaton.tokens.end()) return positions_.step(position, as_symbol->symbol);
    const tokenizer::Tokenizer& tokenizer = constraint_->tokenizer();
    if (!tokenizer::is_ordinary(tokenizer.token_type(token))) return Positions::k_dead;
    return positions_.read(position, tokenizer.token_bytes(token));
}

}  // namespace minim::constraint
