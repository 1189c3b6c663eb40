// SPDX-License-Identifier: Apache-2.0
// Tracks a model's reasoning between <think> and </think>, and closes it when a budget is used up. A text may have any
// number of such blocks; the budget is for all of them together. A tool call ends a block, as it does for the output
// parser, and the text of a call is no reasoning whatever it holds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace minim::engine {

class Reasoning {
  public:
    // `budget`: reasoning tokens after which it is closed; 0: never. Throws unsupported for a budget if the vocabulary
    // does not have both markers.
    Reasoning(const tokenizer::Tokenizer& tokenizer, int64_t budget);

    // Processes the next token of the prompt, or of the answer. Any token may come, also one that is not due.
    void follow(int32_t token);
    void accept(int32_t token);

    // Returns the tokens that must come next to close reasoning: what is left of a line end, </think> and an empty line.
    // Empty: nothing is to be closed. Valid until the next call.
    std::span<const int32_t> due() const noexcept;

    // Returns <think> if it must not come next: the budget is used up, so that nothing could follow but the end.
    std::optional<int32_t> barred() const noexcept;

    // Returns the number of tokens of the answer between the markers, without those that close reasoning.
    int64_t n_tokens() const noexcept { return n_tokens_; }

  private:
    enum class Place : uint8_t {
        outside,
        open,         // after <think>
        call_begins,  // after <minimax:tool_call>: a call if an invoke tag follows, else text as before
        call,         // of tools, up to </minimax:tool_call>
    };

    bool is_used_up() const noexcept { return budget_ > 0 && n_tokens_ >= budget_; }
    void advance(int32_t token, bool is_counted);
    bool goes_on_call(int32_t token);

    const tokenizer::Tokenizer& tokenizer_;
    int64_t budget_;
    std::optional<int32_t> begin_;
    std::optional<int32_t> end_;
    std::optional<int32_t> call_begin_;
    std::optional<int32_t> call_end_;
    std::vector<int32_t> closing_;  // all tokens that close reasoning

    Place place_ = Place::outside;
    size_t n_closing_ = 0;       // how many of closing_ have come; 0 again after the last one
    int64_t n_tokens_ = 0;       // of reasoning
    Place before_call_{};        // call_begins: the place before
    int64_t n_call_tokens_ = 0;  // call_begins: counted tokens from <minimax:tool_call> on
    std::string call_text_;      // call_begins: the text after it
};

}  // namespace minim::engine
