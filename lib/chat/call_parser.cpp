// SPDX-License-Identifier: Apache-2.0
#include "chat/call_parser.h"

#include <utility>

#include "chat/markup.h"

namespace minim::chat {

void CallParser::begin(std::string_view name) {
    state_ = State::invoke;
    n_parameters_ = 0;
    name_ = name;
    deltas_.add_call(name);
}

void CallParser::end() {
    deltas_.add(OutputDelta::Kind::tool_call, n_parameters_ == 0 ? "{}" : "}");
    state_ = State::closed;
}

// Ends the call, whose </invoke> is missing, at the invoke tag that is pending.
void CallParser::begin_next() {
    const std::string name = pending_.name;
    end_value();
    end();
    begin(name);
}

TagSet CallParser::wanted() const noexcept {
    using K = TokenKind;
    const TagSet value_end = TagSet(K::parameter_close) | K::invoke_close | K::block_close;
    const TagSet call_begin = TagSet(K::block_open) | K::invoke_open | K::parameter_open;
    if (state_ == State::invoke)
        return TagSet(K::parameter_open) | K::invoke_open | K::invoke_close | K::block_close;
    if (state_ == State::value && (inner_calls_.empty() || inner_calls_.back().in_value))
        return value_end | K::block_open | K::invoke_open;
    return value_end | call_begin;
}

bool CallParser::take(const Token& token) {
    switch (state_) {
        case State::closed:
            break;
        case State::invoke:
            return take_invoke(token);
        case State::value:
            return take_value(token);
        case State::after_value:
            return take_after_value(token);
        case State::after_next_call:
            return take_after_next_call(token);
        case State::after_inner_call:
            return take_after_inner_call(token);
    }
    return false;
}

bool CallParser::take_invoke(const Token& token) {
    switch (token.kind) {
        case TokenKind::parameter_open:
            begin_value(token.name);
            return true;
        case TokenKind::invoke_close:
            end();
            return true;
        case TokenKind::invoke_open:
        case TokenKind::block_close:
            end();
            return false;
        default:  // nothing else has a meaning between parameters
            return true;
    }
}

void CallParser::begin_value(std::string_view key) {
    state_ = State::value;
    types_ = tools_.types_of(name_, key);
    value_has_begun_ = false;
    value_.clear();
    tail_.clear();
    tail_kind_ = Tail::space;
    inner_calls_.clear();
    after_inner_block_ = false;

    escaped_ = n_parameters_++ == 0 ? "{" : ", ";
    json::append_quoted(escaped_, key);
    escaped_ += types_.is_string_only() ? ": \"" : ": ";
    deltas_.add(OutputDelta::Kind::tool_call, escaped_);
}

bool CallParser::take_value(const Token& token) {
    if (token.kind == TokenKind::space) {
        tail_ += token.raw;
        return true;
    }
    const bool in_block = std::exchange(after_inner_block_, token.kind == TokenKind::block_open);
    if (!inner_calls_.empty() && !inner_calls_.back().in_value) return take_in_inner_call(token);
    switch (token.kind) {
        case TokenKind::parameter_close:
            pending_ = {};
            pending_.add_tag(token.raw);
            state_ = State::after_value;
            return true;
        case TokenKind::invoke_close:
        case TokenKind::block_close: {
            const Tail kind = token.kind == TokenKind::invoke_close ? Tail::invoke_close : Tail::block_close;
            if (kind <= tail_kind_) flush_tail();
            tail_ += token.raw;
            tail_kind_ = kind;
            return true;
        }
        case TokenKind::invoke_open:
            if (tools_.has(token.name)) inner_calls_.push_back({in_block, false});
            break;
        default:
            break;
    }
    flush_tail();
    put_value(token.raw);
    return true;
}

// Takes a token between the parameters of a call that the value shows. Anything that could not stand there ends that call: its tag
// was only mentioned.
bool CallParser::take_in_inner_call(const Token& token) {
    if (token.kind != TokenKind::parameter_open) {
        inner_calls_.pop_back();
        return take_value(token);
    }
    inner_calls_.back().in_value = true;
    flush_tail();
    put_value(token.raw);
    return true;
}

bool CallParser::take_after_value(const Token& token) {
    if (token.kind == TokenKind::space) {
        pending_.text += token.raw;
        return true;
    }
    if (!inner_calls_.empty()) {
        if (token.kind == TokenKind::invoke_close) {
            pending_.add_tag(token.raw);
            state_ = State::after_inner_call;
            return true;
        }
        inner_calls_.back().in_value = token.kind != TokenKind::parameter_open;
        put_pending_in_value();
        return take(token);
    }
    switch (token.kind) {
        case TokenKind::invoke_open:
            pending_.name = token.name;
            pending_.add_tag(token.raw);
            state_ = State::after_next_call;
            return true;
        case TokenKind::parameter_open:
        case TokenKind::bad_parameter:
        case TokenKind::invoke_close:
        case TokenKind::block_close:
            end_value();
            return take(token);
        default:
            put_pending_in_value();
            return take(token);
    }
}

// After </parameter> and an invoke tag, without the </invoke> between them: both are text if text follows.
bool CallParser::take_after_next_call(const Token& token) {
    switch (token.kind) {
        case TokenKind::space:
            pending_.text += token.raw;
            return true;
        case TokenKind::text:
        case TokenKind::parameter_close:
        case TokenKind::block_open:
            put_pending_in_value();
            break;
        default:
            begin_next();
            break;
    }
    return take(token);
}

// The closers belong to the call that the value shows, unless the output goes on as it does after a call.
bool CallParser::take_after_inner_call(const Token& token) {
    const bool in_block = inner_calls_.back().in_block;
    switch (token.kind) {
        case TokenKind::space:
            pending_.text += token.raw;
            return true;
        case TokenKind::block_close:
            if (in_block && !pending_.tag().ends_with(k_m2.block_close)) {
                pending_.add_tag(token.raw);
                return true;
            }
            break;
        case TokenKind::invoke_open:
            if (!in_block) break;
            [[fallthrough]];
        default:
            inner_calls_.pop_back();
            put_pending_in_value();
            after_inner_block_ = in_block && token.kind == TokenKind::invoke_open;
            return take(token);
    }
    end_value();
    end();
    return false;
}

// The pending tags turn out to be text of the value.
void CallParser::put_pending_in_value() {
    flush_tail();
    put_value(pending_.tag());
    tail_ = pending_.space();
    state_ = State::value;
}

void CallParser::put_value(std::string_view text) {
    if (text.empty()) return;
    if (!types_.is_string_only()) {
        value_ += text;
        return;
    }
    if (!value_has_begun_ && text.starts_with('\n')) text.remove_prefix(1);
    value_has_begun_ = true;
    escaped_.clear();
    json::append_escaped(escaped_, text);
    deltas_.add(OutputDelta::Kind::tool_call, escaped_);
}

void CallParser::flush_tail() {
    put_value(tail_);
    tail_.clear();
    tail_kind_ = Tail::space;
}

void CallParser::end_value() {
    state_ = State::invoke;
    if (!types_.is_string_only()) {
        flush_tail();
        escaped_.clear();
        append_argument(escaped_, value_, types_);
        deltas_.add(OutputDelta::Kind::tool_call, escaped_);
        return;
    }
    // If the value is "\n" alone, its newline counts as the leading one.
    const bool only_leading = !value_has_begun_ && tail_ == "\n";
    if (tail_.ends_with('\n') && !only_leading) tail_.pop_back();
    flush_tail();
    deltas_.add(OutputDelta::Kind::tool_call, "\"");
}

void CallParser::finish(std::string_view partial, bool was_cut) {
    if (state_ == State::after_next_call) begin_next();
    if (state_ == State::after_inner_call) {
        if (partial.empty() || k_m2.block_close.starts_with(partial)) {
            end_value();
            return end();
        }
        put_pending_in_value();
    }
    if (was_cut) return;
    if (state_ == State::value && tail_kind_ != Tail::space) {
        tail_.clear();
        tail_kind_ = Tail::space;
    }
    if (state_ != State::invoke) end_value();
    end();
}

}  // namespace minim::chat
