// SPDX-License-Identifier: Apache-2.0
#include "engine/reasoning.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "chat/family.h"

namespace minim::engine {

using chat::Markup;

namespace {

enum class CallText : uint8_t { none, partial, complete };

// Returns whether `text`, which follows the token that may begin a block of calls, goes on to the name of a tool. Whitespace may
// stand between tags.
CallText match_call(std::string_view text, const Markup& markup) {
    const std::string_view tags[] = {markup.block_open, markup.mark, markup.invoke_open};
    const size_t first = markup.mark.empty() ? 2 : 0;  // the token of M2 is the block's tag
    for (size_t i = first; i < std::size(tags); ++i) {
        text = text.substr(std::min(text.find_first_not_of(chat::markup::k_space), text.size()));
        if (!text.starts_with(tags[i])) return tags[i].starts_with(text) ? CallText::partial : CallText::none;
        text.remove_prefix(tags[i].size());
    }
    return CallText::complete;
}

}  // namespace

Reasoning::Reasoning(const tokenizer::Tokenizer& tokenizer, int64_t budget)
    : tokenizer_(tokenizer),
      markup_(chat::markup_of(tokenizer)),
      budget_(budget),
      begin_(tokenizer.find(markup_.think_open)),
      end_(tokenizer.find(markup_.think_close)),
      call_begin_(tokenizer.find(chat::call_begin(markup_))),
      call_end_(markup_.mark.empty() ? tokenizer.find(markup_.block_close) : std::nullopt),
      marked_call_end_(tokenizer.find(markup_.mark), markup_.block_close) {
    if (budget == 0) return;
    if (!begin_ || !end_)
        fail(Status::unsupported, "max_reasoning_tokens is {}, but the model has no tokens {} and {}", budget,
             markup_.think_open, markup_.think_close);
    closing_ = tokenizer.encode(markup_.closing, tokenizer::Specials::exact);
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
        if (ends_call(token)) place_ = Place::outside;
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
    const bool is_mark = token == call_begin_ && !markup_.mark.empty();
    const bool is_markup = token == begin_ || token == end_ || (token == call_begin_ && !is_mark) ||
                           token == call_end_ || tokenizer_.is_eog(token);
    call_text_ += tokenizer_.token_bytes(token);
    const CallText found = is_markup ? CallText::none : match_call(call_text_, markup_);
    if (found == CallText::complete) place_ = Place::call;
    if (found != CallText::none) return true;
    place_ = before_call_;
    if (place_ == Place::open) n_tokens_ += n_call_tokens_;
    return false;
}

bool Reasoning::ends_call(int32_t token) {
    return call_end_ == token || marked_call_end_.follow(token, tokenizer_);
}

}  // namespace minim::engine
