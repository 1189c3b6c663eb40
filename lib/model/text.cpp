// SPDX-License-Identifier: Apache-2.0
#include "model/text.h"

#include "base/error.h"
#include "model/vocabulary.h"

namespace minim::model {
namespace {

using checkpoint::Checkpoint;

// Returns 1 for each row of logits that has no token of its own (padding), 0 for the others. Throws format if the tokenizer is
// of another vocabulary.
std::vector<uint8_t> rows_without_token(const Checkpoint& checkpoint, const tokenizer::Tokenizer& tokenizer,
                                        int64_t n_vocab) {
    const int64_t n_tokens = tokenizer.n_tokens();
    if (checkpoint.container() == checkpoint::Container::gguf ? n_tokens != n_vocab : n_tokens > n_vocab)
        fail_file(Reason::shape, "the tokenizer has {} tokens, the embedding {} rows", n_tokens, n_vocab);
    std::vector<uint8_t> unused(n_vocab, 1);
    for (int32_t id = 0; id < n_tokens; ++id) {
        unused[id] = tokenizer.token_type(id) == tokenizer::TokenType::unused ? 1 : 0;
    }
    return unused;
}

// Returns the first id of the added tokens at the end of the vocabulary, after the last ordinary token.
int32_t first_of_added_tokens(const tokenizer::Tokenizer& tokenizer) {
    int32_t first = tokenizer.n_tokens();
    while (first > 0 && !tokenizer::is_ordinary(tokenizer.token_type(first - 1))) --first;
    return first;
}

}  // namespace

Text::Text(const Checkpoint& checkpoint, const std::string& file, int64_t n_vocab, const TextOptions& options,
           const Logger& log)
    : tokenizer_(read_vocabulary(checkpoint, log),
                 options.engine_tokenizer ? tokenizer::PieceRules::gguf_engine : tokenizer::PieceRules::model,
                 log),
      chat_templates_(checkpoint, tokenizer_, file, options.chat_template, log),
      recommended_sampling_(read_recommended_sampling(checkpoint, log)),
      unused_rows_(rows_without_token(checkpoint, tokenizer_, n_vocab)),
      first_added_token_(first_of_added_tokens(tokenizer_)) {}

std::shared_ptr<const constraint::TokenTrie> Text::token_trie() const {
    const std::lock_guard lock(token_trie_mutex_);
    if (!token_trie_) token_trie_ = std::make_shared<const constraint::TokenTrie>(tokenizer_);
    return token_trie_;
}

}  // namespace minim::model
