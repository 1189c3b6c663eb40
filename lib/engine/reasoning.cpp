// SPDX-License-Identifier: Apache-2.0
#include "engine/reasoning.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/format_text.h"
#include "chat/markup.h"

namespace minim::engine {

using namespace chat;

Reasoning::Reasoning(const tokenizer::Tokenizer& tokenizer, int64_t budget)
    : tokenizer_(tokenizer),
      budget_(budget),
      begin_(tokenizer.find(markup::k_think_open)),
      end_(tokenizer.find(markup::k_think_close)),
      call_begin_(tokenizer.find(markup::k_block_open)),
      call_end_(tokenizer.find(markup::k_block_close)) {
    if (budget == 0) return;
    if (!begin_ || !end_)
        fail(Status::unsupported, "max_reasoning_tokens is {}, but the model has no tokens {} and {}", budget,
             markup::k_think_open, markup::k_think_close);
    closing_ = tokenizer.encode(format_text("\n{}\n\n", markup::k_think_close), tokenizer::Specials::exact);
}

void Reasoning::follow(int32_t token) {
    advance(token, false);
    n_call_tokens_ = 0;
}

std::span<const int32_t> Reasoning::due() const noexcept {
    const bool begins = place_ == Place::open && is_used_up();
    if (n_closing_ == 0 && !begins) return {};
    return std::span(closing_).subspan(n_closing_);
}

std::optional<int32_t> Reasoning::barred() const noexcept {
    return place_ == Place::outside && is_used_up() ? begin_ : std::nullopt;
}

void Reasoning::accept(int32_t token) {
    const std::span<const int32_t> closing = due();
    const bool closes = !closing.empty() && closing[0] == token;
    // Another token than the due one comes where a constraint does not let reasoning be closed.
    n_closing_ = closes ? (n_closing_ + 1) % closing_.size() : 0;
    advance(token, !closes);
}

// is_counted: the token counts if it is one of reasoning.
void Reasoning::advance(int32_t token, bool is_counted) {
    const int64_t n = is_counted ? 1 : 0;
    if (place_ == Place::call_begins && goes_on_call(token)) {
        n_call_tokens_ += n;
        return;
    }
    const Place before = place_;
    if (tokenizer_.is_eog(token)) {
        place_ = Place::outside;
    } else if (place_ == Place::call) {
        if (call_end_ == token) place_ = Place::outside;
    } else if (call_begin_ == token) {
        before_call_ = place_;
        place_ = Place::call_begins;
        call_text_.clear();
        n_call_tokens_ = n;
    } else if (begin_ == token) {
        place_ = Place::open;
    } else if (end_ == token) {
        place_ = Place::outside;
    }
    if (before == Place::open && place_ == Place::open) n_tokens_ += n;
}

// Decides, as the output parser does, whether a call has begun. Returns false if the text is none of a call: the place is then
// the one before.
bool Reasoning::goes_on_call(int32_t token) {
    const bool is_markup = token == begin_ || token == end_ || token == call_begin_ || token == call_end_ ||
                           tokenizer_.is_eog(token);
    call_text_ += tokenizer_.token_bytes(token);
    const std::string_view text = call_text_;
    const std::string_view tag = text.substr(std::min(text.find_first_not_of(markup::k_space), text.size()));
    if (!is_markup && tag.starts_with(markup::k_invoke_open)) {
        place_ = Place::call;
        return true;
    }
    if (!is_markup && markup::k_invoke_open.starts_with(tag)) return true;
    place_ = before_call_;
    if (place_ == Place::open) n_tokens_ += n_call_tokens_;
    return false;
}

}  // namespace minim::engine
