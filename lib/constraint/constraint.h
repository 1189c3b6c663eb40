// SPDX-License-Identifier: Apache-2.0
// A constraint compiled for one vocabulary: the tokens that may come next at every position of the text. Nearly all
// of them depend only on the state, not on the caller of its rule; they are computed once for each state and cached
// (state_tokens.h). The others are tokens that go beyond the end of a rule, as `"}` goes beyond a JSON string: they
// are few, and tried one by one (matcher.h).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "constraint/automaton.h"
#include "constraint/state_tokens.h"
#include "constraint/token_trie.h"
#include "tokenizer/tokenizer.h"

namespace minim::constraint {

// The part of an answer before the text of the grammar. Tokens that are not there have no effect.
struct ConstraintStart {
    // Any text is allowed up to and including this token, followed by two newlines.
    std::optional<int32_t> starts_after = {};
    // If this is there, too, the text before the grammar's is optional: any text is allowed only if the answer begins with this token.
    // An answer may also begin with starts_after, and else it begins with the grammar's text. A grammar whose texts begin with one of
    // the two tokens says itself what comes first.
    std::optional<int32_t> reasons_from = {};
    // Any text is allowed up to this token, which begins a text of the grammar; the answer may also end without it.
    std::optional<int32_t> opens_with = {};
};

// Any thread.
class Constraint {
  public:
    // Throws what make_automaton throws.
    Constraint(Grammar grammar, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
               std::shared_ptr<const TokenTrie> trie, const ConstraintStart& start);

    const Automaton& automaton() const noexcept { return automaton_; }
    const TokenTrie& trie() const noexcept { return *trie_; }
    const tokenizer::Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
    const ConstraintStart& start() const noexcept { return start_; }
    // Returns the token of the mark before tags if closing tags must have the names of the elements that they close, which the automaton
    // does not compare.
    std::optional<int32_t> element_mark() const noexcept { return element_mark_; }

    std::shared_ptr<const StateTokens> state_tokens(int32_t state, int32_t count) const;

    // Returns whether `text` is a complete answer: the text of its tokens, including markup. With starts_after, the
    // constrained part may begin after any occurrence of that token's text, if any text is allowed before it.
    bool matches(std::string_view text) const;

  private:
    bool begins_with(std::optional<int32_t> token) const;
    bool matches_form(std::string_view text, std::string_view opener) const;

    std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
    std::shared_ptr<const TokenTrie> trie_;
    ConstraintStart start_;
    std::optional<int32_t> element_mark_;
    Automaton automaton_;

    mutable std::mutex mutex_;
    mutable StateTokensFinder finder_;
    mutable std::unordered_map<std::vector<int32_t>, std::shared_ptr<const StateTokens>, VectorHash<int32_t>>
        tokens_;  // by kind
    mutable uint64_t tokens_bytes_ = 0;
};

}  // namespace minim::constraint
