// Follows where a model reasons, between <think> and </think>, and closes its reasoning when a budget is used up.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace minim::engine {

class Reasoning {
  public:
    // `budget`: reasoning tokens after which it is closed; 0: never. Throws unsupported for a budget if the vocabulary
    // does not have both markers.
    Reasoning(const tokenizer::Tokenizer& tokenizer, int64_t budget);

    // The next token of the prompt, or of the answer.
    void follow(int32_t token);
    void accept(int32_t token);

    // The token that must come next, if reasoning is being closed: a line end, </think> and an empty line.
    std::optional<int32_t> forced() const;

    // Tokens of the answer between the markers, without those that were forced.
    int64_t n_tokens() const noexcept { return n_tokens_; }

  private:
    const tokenizer::Tokenizer& tokenizer_;
    int64_t budget_;
    std::optional<int32_t> begin_;
    std::optional<int32_t> end_;
    std::vector<int32_t> closing_;
    size_t n_closing_ = 0;  // of these, chosen
    bool is_open_ = false;
    int64_t n_tokens_ = 0;
};

}  // namespace minim::engine
