#include "constraint/constraint.h"

#include <utility>

namespace minim::constraint {
namespace {

constexpr uint64_t k_most_kept_bytes = uint64_t{64} << 20;
constexpr int64_t k_newlines_after_reasoning = 2;

Grammar after_reasoning(Grammar grammar) {
    const Part newlines = grammar.repeat(grammar.byte_in(ByteSet().set('\n')), 0, k_newlines_after_reasoning);
    const Part answer = grammar.call(grammar.start());
    grammar.start_with(grammar.sequence({newlines, answer}));
    return grammar;
}

}  // namespace

Constraint::Constraint(Grammar grammar, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                       std::shared_ptr<const TokenTrie> trie, std::optional<int32_t> starts_after)
    : tokenizer_(std::move(tokenizer)),
      trie_(std::move(trie)),
      starts_after_(starts_after),
      automaton_(make_automaton(starts_after ? after_reasoning(std::move(grammar)) : grammar,
                                trie_->longest_token())),
      finder_(automaton_, *tokenizer_, *trie_) {}

std::shared_ptr<const StateTokens> Constraint::state_tokens(int32_t state) const {
    const int32_t kind = automaton_.kinds[static_cast<size_t>(state)];
    const std::lock_guard lock(mutex_);
    const auto known = tokens_.find(kind);
    if (known != tokens_.end()) return known->second;

    auto tokens = std::make_shared<const StateTokens>(finder_.find(state));
    if (tokens_bytes_ + tokens->bytes() > k_most_kept_bytes) {
        tokens_.clear();
        tokens_bytes_ = 0;
    }
    tokens_.emplace(kind, tokens);
    tokens_bytes_ += tokens->bytes();
    return tokens;
}

}  // namespace minim::constraint
