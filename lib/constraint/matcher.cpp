// SPDX-License-Identifier: Apache-2.0
#include "constraint/matcher.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"

namespace minim::constraint {

Matcher::Matcher(std::shared_ptr<const Constraint> constraint, int64_t n_vocab,
                 std::vector<int32_t> end_tokens)
    : constraint_(std::move(constraint)),
      end_tokens_(std::move(end_tokens)),
      positions_(constraint_->automaton()),
      progress_(beginning()),
      allowed_((static_cast<size_t>(n_vocab) + 63) / 64) {
    if (n_vocab < constraint_->trie().n_vocab())
        fail_internal("a constraint for {} tokens and {} logits", constraint_->trie().n_vocab(), n_vocab);
}

Matcher::Progress Matcher::beginning() {
    const ConstraintStart& start = constraint_->start();
    const bool may_reason = start.reasons_from.has_value();
    const bool waits = start.starts_after && !may_reason;
    return {.may_reason = may_reason,
            .waits_for_start = waits,
            .has_started = !waits && !start.opens_with,
            .position = positions_.start_of(constraint_->automaton().start_rule)};
}

std::span<const uint64_t> Matcher::allowed() {
    if (allowed_is_known_) return allowed_;
    std::ranges::fill(allowed_, 0);
    // Places are sorted: those of one state and count follow each other.
    const auto all = positions_.places(progress_.position);
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
        if (positions_.step(progress_.position, token.symbol) != Positions::k_dead) allow(token.token);
    if (constraint_->element_mark() && progress_.elements.decides()) forbid_wrong_names();
    if (progress_.may_reason) {
        allow(*constraint_->start().reasons_from);
        allow(*constraint_->start().starts_after);
    }
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
    Progress progress = progress_;
    follow(progress, token);
    if (progress.position == Positions::k_dead)
        fail(Status::invalid, "token {} does not fit the constraint", token);
    std::swap(progress, progress_);
    const bool is_same = progress.position == progress_.position &&
                         progress.may_reason == progress_.may_reason && !constraint_->element_mark();
    if (is_same) return;
    allowed_is_known_ = false;
    if (positions_.are_many()) progress_.position = positions_.keep_only(progress_.position);
}

bool Matcher::fits(std::span<const int32_t> tokens) {
    Progress progress = progress_;
    for (const int32_t token : tokens) {
        follow(progress, token);
        if (progress.position == Positions::k_dead) return false;
    }
    return true;
}

void Matcher::follow(Progress& progress, int32_t token) {
    const ConstraintStart& start = constraint_->start();
    if (std::exchange(progress.may_reason, false)) {
        progress.waits_for_start = token == start.reasons_from;
        progress.has_started = !progress.waits_for_start;
        if (progress.waits_for_start || token == start.starts_after) return;
    }
    if (progress.waits_for_start) {
        progress.waits_for_start = token != start.starts_after;
        progress.has_started = !progress.waits_for_start && !start.opens_with;
        return;
    }
    if (!progress.has_started && token != start.opens_with) return;
    progress.has_started = true;
    progress.position = after_token(progress.position, token);
    if (constraint_->element_mark() && !follow_elements(progress.elements, token))
        progress.position = Positions::k_dead;
}

// Returns false if a closing tag has another name than its element.
bool Matcher::follow_elements(OpenElements& elements, int32_t token) const {
    if (token != constraint_->element_mark())
        return elements.add(constraint_->tokenizer().token_bytes(token));
    elements.add_mark();
    return true;
}

// Forbids tokens with which a closing tag would have another name than its element.
void Matcher::forbid_wrong_names() {
    const tokenizer::Tokenizer& tokenizer = constraint_->tokenizer();
    for (size_t word = 0; word < allowed_.size(); ++word) {
        for (uint64_t left = allowed_[word]; left != 0; left &= left - 1) {
            const int bit = std::countr_zero(left);
            const auto token = static_cast<int32_t>(word * 64) + bit;
            if (!progress_.elements.allows(tokenizer.token_bytes(token)))
                allowed_[word] &= ~(uint64_t{1} << bit);
        }
    }
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
