// SPDX-License-Identifier: Apache-2.0
// Tracks a model's reasoning between the tags of its markup, <think> and </think> for M2, and closes it when a budget is used up.
// A text may have any number of such blocks; the budget is for all of them together. A tool call ends a block, as it does for the
// output parser, and the text of a call is no reasoning whatever it holds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chat/markup.h"
#include "engine/marked_tag.h"
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

    // Returns the tokens that must come next to close reasoning: what is left of Markup::closing.
    // Empty: nothing is to be closed. Valid until the next call.
    std::span<const int32_t> due() const noexcept;

    // Returns the opening tag if it must not come next: the budget is used up, so that nothing could follow but the end.
    std::optional<int32_t> barred() const noexcept;

    // Returns the number of tokens of the answer between the markers, without those that close reasoning.
    int64_t n_tokens() const noexcept { return n_tokens_; }

  private:
    enum class Place : uint8_t {
        outside,
        open,  // after the opening tag
        call_begins,  // after the token that may begin a block of calls: a call if an invoke tag follows, else text as before
        call,  // of tools, up to the end of the block
    };

    bool is_used_up() const noexcept { return budget_ > 0 && n_tokens_ >= budget_; }
    void advance(int32_t token, bool is_counted);
    bool goes_on_call(int32_t token);
    bool ends_call(int32_t token);

    const tokenizer::Tokenizer& tokenizer_;
    const chat::Markup& markup_;
    int64_t budget_;
    std::optional<int32_t> begin_;
    std::optional<int32_t> end_;
    std::optional<int32_t> call_begin_;  // M2: <minimax:tool_call>; M3: the mark
    std::optional<int32_t> call_end_;    // M2
    MarkedTag marked_call_end_;          // M3
    std::vector<int32_t> closing_;       // all tokens that close reasoning

    Place place_ = Place::outside;
    size_t n_closing_ = 0;       // how many of closing_ have come; 0 again after the last one
    int64_t n_tokens_ = 0;       // of reasoning
    Place before_call_{};        // call_begins: the place before
    int64_t n_call_tokens_ = 0;  // call_begins: counted tokens from call_begin_ on
    std::string call_text_;      // call_begins: the text after it
};

}  // namespace minim::engine
