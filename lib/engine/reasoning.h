// SPDX-License-Identifier: Apache-2.0
// Tracks a model's reasoning between <think> and </think>, and closes it when a budget is used up.
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

    // Processes the next token of the prompt, or of the answer.
    void follow(int32_t token);
    void accept(int32_t token);

    // Returns the token that must come next while reasoning is being closed: a line end, </think> and an empty line.
    std::optional<int32_t> forced() const;

    // Returns the number of tokens of the answer between the markers, without the forced ones.
    int64_t n_tokens() const noexcept { return n_tokens_; }

  private:
    const tokenizer::Tokenizer& tokenizer_;
    int64_t budget_;
    std::optional<int32_t> begin_;
    std::optional<int32_t> end_;
    std::vector<int32_t> closing_;
    size_t n_closing_ = 0;  // how many of these were chosen
    bool is_open_ = false;
    int64_t n_tokens_ = 0;
};

}  // namespace minim::engine
