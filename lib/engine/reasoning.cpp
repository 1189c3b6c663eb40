// SPDX-License-Identifier: Apache-2.0
#include "engine/reasoning.h"

#include "base/error.h"
#include "base/format_text.h"
#include "chat/markup.h"

namespace minim::engine {

Reasoning::Reasoning(const tokenizer::Tokenizer& tokenizer, int64_t budget)
    : tokenizer_(tokenizer),
      budget_(budget),
      begin_(tokenizer.find(chat::markup::k_think_open)),
      end_(tokenizer.find(chat::markup::k_think_close)) {
    if (budget == 0) return;
    if (!begin_ || !end_)
        fail(Status::unsupported, "max_reasoning_tokens is {}, but the model has no tokens {} and {}", budget,
             chat::markup::k_think_open, chat::markup::k_think_close);
    closing_ =
        tokenizer.encode(format_text("\n{}\n\n", chat::markup::k_think_close), tokenizer::Specials::exact);
}

void Reasoning::follow(int32_t token) {
    if (begin_ == token) {
        is_open_ = true;
    } else if (end_ == token || tokenizer_.is_eog(token)) {
        is_open_ = false;
    }
}

std::optional<int32_t> Reasoning::forced() const {
    const bool begins = is_open_ && budget_ > 0 && n_tokens_ >= budget_;
    const bool goes_on = n_closing_ > 0 && n_closing_ < closing_.size();
    if (!begins && !goes_on) return std::nullopt;
    return closing_[n_closing_];
}

void Reasoning::accept(int32_t token) {
    if (forced()) {
        ++n_closing_;
    } else if (is_open_ && end_ != token) {
        ++n_tokens_;
    }
    follow(token);
}

}  // namespace minim::engine
