// SPDX-License-Identifier: Apache-2.0
#include "chat/element_output.h"

#include "chat/markup.h"

namespace minim::chat {
namespace {

using Kind = ElementToken::Kind;
using Tags = ElementTags;

// Returns whether the beginning of a tag after a mark, or without one, can only be that of an invoke tag.
bool begins_invoke(std::string_view partial) {
    const bool has_mark = partial.starts_with(k_m3.mark);
    if (has_mark) partial.remove_prefix(k_m3.mark.size());
    while (!partial.empty() && markup::is_space(partial.front())) partial.remove_prefix(1);
    return partial.starts_with("<i") || (has_mark && partial.starts_with('i'));
}

}  // namespace

void ElementOutput::feed(std::string_view text) {
    lexer_.push(text);
    for (;;) {
        const bool in_call = call_.is_open();
        const auto token =
            in_call ? lexer_.next(call_.wanted(), call_.value_name()) : lexer_.next(wanted(), {});
        if (!token) return;
        if (!in_call || !call_.take(*token)) take(*token);
    }
}

bool ElementOutput::finish(bool was_cut) {
    bool cut_in_call = false;
    if (call_.is_open()) {
        call_.finish(lexer_.pending(), was_cut);
        cut_in_call = call_.is_open();
    } else {
        cut_in_call = finish_text(lexer_.pending(), was_cut);
    }
    text_.finish();
    return cut_in_call;
}

ElementTags ElementOutput::wanted() const noexcept {
    switch (state_) {
        case State::start:
            return wanted_in_text() | Tags::think_open() | Tags::think_close();
        case State::text:
            break;
        case State::after_block_open: {
            const Tags outside = pending_from_ == State::block ? wanted_in_block() : wanted_in_text();
            const Tags strict = outside | Tags::invoke_open();
            if (text_.in_reasoning()) return strict;
            const Tags lenient = strict | Tags::invoke_without_bracket();
            return pending_has_mark_ ? lenient | Tags::bare_invoke_open() : lenient;
        }
        case State::block:
            return wanted_in_block();
    }
    return wanted_in_text();
}

ElementTags ElementOutput::wanted_in_text() const noexcept {
    Tags tags;
    if (text_.in_reasoning()) tags = tags | Tags::think_close();
    if (call_.tools().is_empty()) return tags;
    tags = tags | Tags::block_open();
    if (!text_.in_reasoning()) tags = tags | Tags::bare_block_open() | Tags::invoke_open();
    if (after_call_) tags = tags | Tags::block_close() | Tags::bare_block_close();
    return tags;
}

ElementTags ElementOutput::wanted_in_block() const noexcept {
    return Tags::block_open() | Tags::bare_block_open() | Tags::block_close() | Tags::bare_block_close() |
           Tags::invoke_open() | Tags::bare_invoke_open() | Tags::invoke_without_bracket() |
           Tags::invoke_close() | Tags::bare_invoke_close();
}

void ElementOutput::take(const ElementToken& token) {
    switch (state_) {
        case State::start:
            return take_start(token);
        case State::text:
            return take_text(token);
        case State::after_block_open:
            return take_after_block_open(token);
        case State::block:
            return take_block(token);
    }
}

void ElementOutput::take_start(const ElementToken& token) {
    if (token.kind == Kind::space) {
        pending_ += token.raw;
        return;
    }
    if (token.kind == Kind::think_open) {
        state_ = State::text;
        return text_.begin_at_tag(pending_, token.raw);
    }
    const bool is_split = options_.reasoning == ReasoningMode::split;
    if (token.kind == Kind::think_close && !options_.starts_in_reasoning && is_split) {
        state_ = State::text;  // the output has no reasoning
        return;
    }
    leave_start();
    take(token);
}

void ElementOutput::leave_start() {
    state_ = State::text;
    text_.begin(pending_);
}

void ElementOutput::take_text(const ElementToken& token) {
    switch (token.kind) {
        case Kind::space:
            return text_.put_space(token.raw);
        case Kind::think_close:
            if (text_.close(token.raw)) return;
            break;
        case Kind::block_open:
            return hold_block_open(token);
        case Kind::invoke_open:
            if (!call_.tools().has(token.name)) break;
            return begin_call(token.name, State::text);
        case Kind::block_close:  // of a block whose opening tag is missing
            if (!after_call_) break;
            text_.drop_space();
            after_call_ = false;
            return;
        default:
            break;
    }
    put_text(token.raw);
}

void ElementOutput::hold_block_open(const ElementToken& token) {
    pending_ = token.raw;
    pending_space_.clear();
    pending_has_mark_ = token.has_mark;
    pending_from_ = state_;
    state_ = State::after_block_open;
}

void ElementOutput::release_pending() {
    state_ = pending_from_;
    put_text(pending_);
    text_.put_space(pending_space_);
}

void ElementOutput::put_text(std::string_view text) {
    after_call_ = false;
    text_.put_text(text);
}

void ElementOutput::take_after_block_open(const ElementToken& token) {
    if (token.kind == Kind::space) {
        pending_space_ += token.raw;
    } else if (token.kind == Kind::invoke_open) {
        begin_call(token.name, State::block);
    } else {
        release_pending();
        take(token);
    }
}

void ElementOutput::take_block(const ElementToken& token) {
    switch (token.kind) {
        case Kind::space:
            return text_.put_space(token.raw);
        case Kind::invoke_open:
            return begin_call(token.name, State::block);
        case Kind::invoke_close:  // of no call
            return;
        case Kind::block_open:
            return hold_block_open(token);
        case Kind::block_close:
            text_.drop_space();
            after_call_ = false;
            state_ = State::text;
            return;
        default:
            return put_text(token.raw);
    }
}

// `after`: the state once the call has ended.
void ElementOutput::begin_call(std::string_view name, State after) {
    text_.begin_call();
    call_.begin(name);
    state_ = after;
    after_call_ = true;
}

// Ends the output outside of calls. Returns whether it was cut where a call begins. `partial`: the beginning of a tag.
bool ElementOutput::finish_text(std::string_view partial, bool was_cut) {
    switch (state_) {
        case State::start:
            if (!pending_.empty() || !partial.empty()) leave_start();
            break;
        case State::text:
            break;
        case State::after_block_open:
            if (was_cut && begins_invoke(partial)) {
                text_.drop_space();
                return true;
            }
            release_pending();
            break;
        case State::block:
            // An unfinished tag is left out, a part of a mark is text.
            if (partial.starts_with(k_m3.mark) || begins_invoke(partial))
                return was_cut && begins_invoke(partial);
            break;
    }
    if (!partial.empty()) put_text(partial);
    return false;
}

}  // namespace minim::chat
