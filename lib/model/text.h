// SPDX-License-Identifier: Apache-2.0
// What a model knows of text: the tokenizer, the chat templates, and what its checkpoint recommends for sampling. An answer
// needs this of a model, and the logits.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "constraint/token_trie.h"
#include "model/chat_templates.h"
#include "model/dry_breakers.h"
#include "model/recommended_sampling.h"
#include "tokenizer/tokenizer.h"

namespace minim::model {

struct TextOptions {
    std::string chat_template = {};  // text, in place of the checkpoint's templates; empty: none
    bool engine_tokenizer = false;   // split text as llama.cpp does, for token-exact comparisons with it
};

// Any thread.
class Text {
  public:
    // `file` names the checkpoint in errors. n_vocab: the number of logits.
    Text(const checkpoint::Checkpoint& checkpoint, const std::string& file, int64_t n_vocab,
         const TextOptions& options, const Logger& log);

    const tokenizer::Tokenizer& tokenizer() const noexcept { return tokenizer_; }
    const ChatTemplates& chat_templates() const noexcept { return chat_templates_; }
    const RecommendedSampling& recommended_sampling() const noexcept { return recommended_sampling_; }

    // Returns one entry for each logit; 1 for padding of the vocabulary, which is not a token.
    std::span<const uint8_t> unused_rows() const noexcept { return unused_rows_; }
    // Returns the first id of the added tokens, which are at the end of the vocabulary: ids from here on are markup.
    int32_t first_added_token() const noexcept { return first_added_token_; }

    // Returns the tree of the vocabulary, for constraints. It is made at the first call: few models need one.
    std::shared_ptr<const constraint::TokenTrie> token_trie() const;

    // Returns the tokens of a text that ends repetitions for DRY sampling.
    std::shared_ptr<const sampling::DryBreaker> dry_breaker(const std::string& text) const {
        return dry_breakers_.find(tokenizer_, text);
    }

  private:
    tokenizer::Tokenizer tokenizer_;
    ChatTemplates chat_templates_;
    RecommendedSampling recommended_sampling_;
    std::vector<uint8_t> unused_rows_;
    int32_t first_added_token_;
    mutable DryBreakers dry_breakers_;
    mutable std::mutex token_trie_mutex_;
    mutable std::shared_ptr<const constraint::TokenTrie> token_trie_;
};

}  // namespace minim::model
