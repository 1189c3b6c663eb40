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

// Any thread.
class Constraint {
  public:
    // `starts_after`: any text is allowed up to and including this token, followed by two newlines. `opens_with`: any
    // text is allowed up to this token, which begins a text of the grammar; the answer may also end without it.
    // Throws what make_automaton throws.
    Constraint(Grammar grammar, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
               std::shared_ptr<const TokenTrie> trie, std::optional<int32_t> starts_after,
               std::optional<int32_t> opens_with = std::nullopt);

    const Automaton& automaton() const noexcept { return automaton_; }
    const TokenTrie& trie() const noexcept { return *trie_; }
    const tokenizer::Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
    std::optional<int32_t> starts_after() const noexcept { return starts_after_; }
    std::optional<int32_t> opens_with() const noexcept { return opens_with_; }

    std::shared_ptr<const StateTokens> state_tokens(int32_t state, int32_t count) const;

    // Returns whether `text` is a complete answer: the text of its tokens, including markup. With starts_after, the
    // constrained part may begin after any occurrence of that token's text.
    bool matches(std::string_view text) const;

  private:
    bool matches_form(std::string_view text, std::string_view opener) const;

    std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
    std::shared_ptr<const TokenTrie> trie_;
    std::optional<int32_t> starts_after_;
    std::optional<int32_t> opens_with_;
    Automaton automaton_;

    mutable std::mutex mutex_;
    mutable StateTokensFinder finder_;
    mutable std::unordered_map<std::vector<int32_t>, std::shared_ptr<const StateTokens>, VectorHash<int32_t>>
        tokens_;  // by kind
    mutable uint64_t tokens_bytes_ = 0;
};

}  // namespace minim::constraint
