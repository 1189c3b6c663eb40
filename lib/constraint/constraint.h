// What an answer must look like, compiled for one vocabulary: which tokens may come next wherever the text
// stands. Nearly all of that depends on the state alone and not on who called its rule; it is found once a
// state and kept (state_tokens.h). The rest are tokens that reach beyond the end of a rule, as `"}` does beyond
// a JSON string: few, and tried one by one (matcher.h).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "constraint/automaton.h"
#include "constraint/state_tokens.h"
#include "constraint/token_trie.h"
#include "tokenizer/tokenizer.h"

namespace minim::constraint {

// Any thread.
class Constraint {
  public:
    // `starts_after`: any text is allowed up to and with this token, and two newlines behind it. Throws what
    // make_automaton does. `opens_with`: any text is allowed up to this token, which begins a text of the grammar, and the
    // answer may do without it.
    Constraint(Grammar grammar, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
               std::shared_ptr<const TokenTrie> trie, std::optional<int32_t> starts_after,
               std::optional<int32_t> opens_with = std::nullopt);

    const Automaton& automaton() const noexcept { return automaton_; }
    const TokenTrie& trie() const noexcept { return *trie_; }
    const tokenizer::Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
    std::optional<int32_t> starts_after() const noexcept { return starts_after_; }
    std::optional<int32_t> opens_with() const noexcept { return opens_with_; }

    std::shared_ptr<const StateTokens> state_tokens(int32_t state) const;

    // Whether `text` is a whole answer: what tokens would write, with markup as its text. With starts_after the
    // answer may begin after any place where that token's text stands.
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
    mutable std::unordered_map<int32_t, std::shared_ptr<const StateTokens>> tokens_;  // by kind
    mutable uint64_t tokens_bytes_ = 0;
};

}  // namespace minim::constraint
