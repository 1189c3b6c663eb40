// SPDX-License-Identifier: Apache-2.0
#include "chat/tag_output.h"

namespace minim::chat {

void TagOutput::feed(std::string_view text) {
    lexer_.push(text);
    while (const auto token = lexer_.next(call_.is_open() ? call_.wanted() : wanted()))
        if (!call_.is_open() || !call_.take(*token)) take(*token);
}

bool TagOutput::finish(bool was_cut) {
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

TagSet TagOutput::wanted() const noexcept {
    using K = TokenKind;
    switch (state_) {
        case State::start:
            return wanted_in_text() | K::think_open;
        case State::after_block_open: {
            const TagSet outside = pending_from_ == State::block ? wanted_in_block() : wanted_in_text();
            const TagSet inside = outside | K::invoke_open;
            return text_.in_reasoning() ? inside : inside | TagSet::bare_invoke();
        }
        case State::after_invoke_tag:
            return wanted_in_text() | K::parameter_open | K::invoke_close;
        case State::block:
            return wanted_in_block();
        case State::text:
        case State::after_closer:
            break;
    }
    return wanted_in_text();
}

TagSet TagOutput::wanted_in_text() const noexcept {
    using K = TokenKind;
    TagSet tags;
    if (text_.in_reasoning() || text_.owes_closer() || text_.may_close_again()) tags = tags | K::think_close;
    if (call_.tools().is_empty()) return tags;
    tags = tags | K::block_open;
    if (!text_.in_reasoning()) tags = tags | K::invoke_open;
    if (after_call_) tags = tags | K::block_close;
    return tags;
}

TagSet TagOutput::wanted_in_block() const noexcept {
    using K = TokenKind;
    TagSet tags = TagSet(K::invoke_open) | K::block_open | K::block_close;
    if (text_.owes_closer()) tags = tags | K::think_close;
    return after_call_ ? tags | TagSet::bare_invoke() : tags;
}

void TagOutput::take(const Token& token) {
    switch (state_) {
        case State::start:
            return take_start(token);
        case State::text:
            return take_text(token);
        case State::after_closer:
            return take_after_closer(token);
        case State::after_block_open:
            return take_after_block_open(token);
        case State::after_invoke_tag:
            return take_after_invoke_tag(token);
        case State::block:
            return take_block(token);
    }
}

void TagOutput::take_start(const Token& token) {
    if (token.kind == TokenKind::space) {
        pending_.text += token.raw;
        return;
    }
    if (token.kind == TokenKind::think_open) {
        state_ = State::text;
        return text_.begin_at_tag(pending_.text, token.raw);
    }
    leave_start();
    take(token);
}

void TagOutput::leave_start() {
    state_ = State::text;
    text_.begin(pending_.text);
}

void TagOutput::take_text(const Token& token) {
    switch (token.kind) {
        case TokenKind::space:
            return text_.put_space(token.raw);
        case TokenKind::think_close:
            if (text_.close(token.raw)) return;
            if (!text_.may_close_again()) break;
            return hold(State::after_closer, token);
        case TokenKind::block_open:
            return hold(State::after_block_open, token);
        case TokenKind::invoke_open:
            if (!call_.tools().has(token.name)) break;
            return hold(State::after_invoke_tag, token);
        case TokenKind::block_close:  // of a block whose opening tag is missing
            if (!after_call_) break;
            text_.drop_space();
            after_call_ = false;
            return;
        default:
            break;
    }
    put_text(token.raw);
}

void TagOutput::take_after_closer(const Token& token) {
    if (token.raw.starts_with('\n')) {
        state_ = State::text;
    } else {
        release_pending(State::text);
    }
    take(token);
}

void TagOutput::hold(State state, const Token& token) {
    pending_ = {};
    pending_.add_tag(token.raw);
    pending_.name = token.name;
    pending_from_ = state_;
    state_ = state;
}

void TagOutput::release_pending(State state) {
    state_ = state;
    put_text(pending_.tag());
    text_.put_space(pending_.space());
}

void TagOutput::put_text(std::string_view text) {
    after_call_ = false;
    text_.put_text(text);
}

void TagOutput::take_after_block_open(const Token& token) {
    if (token.kind == TokenKind::space) {
        pending_.text += token.raw;
    } else if (token.kind == TokenKind::invoke_open) {
        begin_call(token.name, State::block);
    } else {
        release_pending(pending_from_);
        take(token);
    }
}

void TagOutput::take_after_invoke_tag(const Token& token) {
    switch (token.kind) {
        case TokenKind::space:
            pending_.text += token.raw;
            return;
        case TokenKind::parameter_open:
        case TokenKind::bad_parameter:
        case TokenKind::invoke_close:
            begin_call(pending_.name, State::text);
            call_.take(token);
            return;
        default:
            release_pending(State::text);
            return take(token);
    }
}

void TagOutput::take_block(const Token& token) {
    switch (token.kind) {
        case TokenKind::space:
            return text_.put_space(token.raw);
        case TokenKind::invoke_open:
            return begin_call(token.name, State::block);
        case TokenKind::block_open:
            return hold(State::after_block_open, token);
        case TokenKind::block_close:
            text_.drop_space();
            after_call_ = false;
            state_ = State::text;
            return;
        case TokenKind::think_close:
            if (text_.close(token.raw)) return;
            [[fallthrough]];
        default:
            return put_text(token.raw);
    }
}

// `after`: the state once the call has ended.
void TagOutput::begin_call(std::string_view name, State after) {
    text_.begin_call();
    call_.begin(name);
    state_ = after;
    after_call_ = true;
}

// Ends the output outside of calls. Returns whether it was cut where a call begins. `partial`: the beginning of a tag.
bool TagOutput::finish_text(std::string_view partial, bool was_cut) {
    switch (state_) {
        case State::start:
            if (!pending_.text.empty() || !partial.empty()) leave_start();
            break;
        case State::after_closer:
            if (!partial.empty()) release_pending(State::text);
            break;
        case State::after_block_open:
            if (was_cut && (partial.starts_with("<i") || partial.starts_with('i'))) {
                text_.drop_space();
                return true;
            }
            release_pending(pending_from_);
            break;
        case State::after_invoke_tag:
            release_pending(State::text);
            break;
        case State::block:
            return was_cut && (partial.starts_with("<invoke") || partial.starts_with("invoke"));
        case State::text:
            break;
    }
    if (!partial.empty()) put_text(partial);
    return false;
}

}  // namespace minim::chat
