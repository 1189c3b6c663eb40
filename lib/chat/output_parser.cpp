// SPDX-License-Identifier: Apache-2.0
// One long file: a state machine whose states share its buffers.
#include "chat/output_parser.h"

#include <algorithm>
#include <utility>

#include "chat/markup.h"

namespace minim::chat {

namespace {

std::string_view without_leading_newlines(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
    return text;
}

std::string_view without_trailing_newlines(std::string_view text) {
    return text.substr(0, text.find_last_not_of('\n') + 1);
}

}  // namespace

OutputParser::OutputParser(json::Value tools, const ParserOptions& options)
    : tools_(std::move(tools)), options_(options), in_reasoning_(options.starts_in_reasoning) {}

void OutputParser::feed(std::string_view bytes) {
    clear_deltas();
    decoded_.clear();
    decoder_.push(bytes, decoded_);
    lexer_.push(decoded_);
    run();
}

void OutputParser::run() {
    while (const auto token = lexer_.next(wanted())) take(*token);
}

Finish OutputParser::finish(Finish finish) {
    clear_deltas();
    decoded_.clear();
    decoder_.finish(decoded_);
    lexer_.push(decoded_);
    run();
    return finish_at(state_, lexer_.pending(), finish);
}

TagSet OutputParser::wanted() const noexcept {
    using K = TokenKind;
    const TagSet value_end = TagSet(K::parameter_close) | K::invoke_close | K::block_close;
    const TagSet call_begin = TagSet(K::block_open) | K::invoke_open | K::parameter_open;
    switch (state_) {
        case State::start:
            return wanted_in_text() | K::think_open;
        case State::after_block_open: {
            const TagSet outside = pending_from_ == State::block ? wanted_in_block() : wanted_in_text();
            const TagSet inside = outside | K::invoke_open;
            return in_reasoning_ ? inside : inside | TagSet::bare_invoke();
        }
        case State::after_invoke_tag:
            return wanted_in_text() | K::parameter_open | K::invoke_close;
        case State::block:
            return wanted_in_block();
        case State::invoke:
            return TagSet(K::parameter_open) | K::invoke_open | K::invoke_close | K::block_close;
        case State::value: {
            const bool in_tags = !inner_calls_.empty() && !inner_calls_.back().in_value;
            return in_tags ? value_end | call_begin : value_end | K::block_open | K::invoke_open;
        }
        case State::after_value:
        case State::after_next_call:
        case State::after_inner_call:
            return value_end | call_begin;
        case State::text:
        case State::after_closer:
        case State::finished:
            break;
    }
    return wanted_in_text();
}

TagSet OutputParser::wanted_in_text() const noexcept {
    using K = TokenKind;
    TagSet tags;
    if (in_reasoning_ || owes_closer_ || may_close_again()) tags = tags | K::think_close;
    if (tools_.is_empty()) return tags;
    tags = tags | K::block_open;
    if (!in_reasoning_) tags = tags | K::invoke_open;
    if (after_invoke_) tags = tags | K::block_close;
    return tags;
}

TagSet OutputParser::wanted_in_block() const noexcept {
    using K = TokenKind;
    TagSet tags = TagSet(K::invoke_open) | K::block_open | K::block_close;
    if (owes_closer_) tags = tags | K::think_close;
    return after_invoke_ ? tags | TagSet::bare_invoke() : tags;
}

void OutputParser::take(const Token& token) {
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
        case State::finished:
            return;
    }
}

// ---- reasoning and content

void OutputParser::take_start(const Token& token) {
    if (token.kind == TokenKind::space) {
        pending_ += token.raw;
        return;
    }
    if (token.kind == TokenKind::think_open) {
        in_reasoning_ = true;
        state_ = State::text;
        if (options_.reasoning != ReasoningMode::split) {
            put_space(pending_);
            put_text(token.raw);
        }
        return;
    }
    leave_start();
    take(token);
}

void OutputParser::leave_start() {
    state_ = State::text;
    if (options_.reasoning == ReasoningMode::append_think && options_.starts_in_reasoning)
        put_text(markup::k_think_open);
    put_space(pending_);
    pending_.clear();
}

void OutputParser::take_text(const Token& token) {
    switch (token.kind) {
        case TokenKind::space:
            return put_space(token.raw);
        case TokenKind::think_close:
            if (in_reasoning_) {
                if (options_.reasoning == ReasoningMode::split) return end_reasoning();
                in_reasoning_ = false;
                return put_text(token.raw);
            }
            if (owes_closer_) return end_reasoning();
            if (!may_close_again()) break;
            return hold(State::after_closer, token.raw);
        case TokenKind::block_open:
            return hold(State::after_block_open, token.raw);
        case TokenKind::invoke_open:
            if (!tools_.has(token.name)) break;
            pending_name_ = token.name;
            return hold(State::after_invoke_tag, token.raw);
        case TokenKind::block_close:  // of a block whose opening tag is missing
            if (!after_invoke_) break;
            space_.clear();
            after_invoke_ = false;
            return;
        default:
            break;
    }
    put_text(token.raw);
}

// Ends the reasoning at its </think>. If a call has ended it before, the tag is left out of the content.
void OutputParser::end_reasoning() {
    if (std::exchange(owes_closer_, false)) {
        space_ = text_has_begun_ ? std::string(without_trailing_newlines(space_)) : std::string();
        return;
    }
    emit(OutputDelta::Kind::reasoning, without_trailing_newlines(space_));
    space_.clear();
    in_reasoning_ = false;
    text_has_begun_ = false;
}

// Returns whether the content is still empty, so that a </think> would stand at its start.
bool OutputParser::may_close_again() const noexcept {
    return options_.reasoning == ReasoningMode::split && !in_reasoning_ && !text_has_begun_ && space_.empty();
}

void OutputParser::take_after_closer(const Token& token) {
    if (token.raw.starts_with('\n')) {
        pending_.clear();
        state_ = State::text;
    } else {
        release_pending(State::text);
    }
    take(token);
}

void OutputParser::hold(State state, std::string_view tag) {
    pending_ = tag;
    pending_tag_bytes_ = tag.size();
    pending_from_ = state_;
    state_ = state;
}

void OutputParser::release_pending(State state) {
    state_ = state;
    put_text(std::string_view(pending_).substr(0, pending_tag_bytes_));
    put_space(std::string_view(pending_).substr(pending_tag_bytes_));
    pending_.clear();
}

void OutputParser::put_text(std::string_view text) {
    flush_space();
    after_invoke_ = false;
    text_has_begun_ = true;
    const bool is_reasoning = in_reasoning_ && options_.reasoning == ReasoningMode::split;
    emit(is_reasoning ? OutputDelta::Kind::reasoning : OutputDelta::Kind::content, text);
}

void OutputParser::put_space(std::string_view space) {
    const bool trims = options_.reasoning == ReasoningMode::split && !text_has_begun_ && space_.empty();
    space_ += trims ? without_leading_newlines(space) : space;
}

void OutputParser::flush_space() {
    const bool is_reasoning = in_reasoning_ && options_.reasoning == ReasoningMode::split;
    emit(is_reasoning ? OutputDelta::Kind::reasoning : OutputDelta::Kind::content, space_);
    space_.clear();
}

// ---- where tool calls begin and end

void OutputParser::take_after_block_open(const Token& token) {
    if (token.kind == TokenKind::space) {
        pending_ += token.raw;
    } else if (token.kind == TokenKind::invoke_open) {
        begin_call(token.name, true);
    } else {
        release_pending(pending_from_);
        take(token);
    }
}

void OutputParser::take_after_invoke_tag(const Token& token) {
    switch (token.kind) {
        case TokenKind::space:
            pending_ += token.raw;
            return;
        case TokenKind::parameter_open:
        case TokenKind::bad_parameter:
        case TokenKind::invoke_close:
            begin_call(pending_name_, false);
            break;
        default:
            release_pending(State::text);
            break;
    }
    take(token);
}

void OutputParser::take_block(const Token& token) {
    switch (token.kind) {
        case TokenKind::space:
            return put_space(token.raw);
        case TokenKind::invoke_open:
            return begin_call(token.name, true);
        case TokenKind::block_open:
            return hold(State::after_block_open, token.raw);
        case TokenKind::block_close:
            space_.clear();
            after_invoke_ = false;
            state_ = State::text;
            return;
        case TokenKind::think_close:
            if (owes_closer_) return end_reasoning();
            [[fallthrough]];
        default:
            return put_text(token.raw);
    }
}

void OutputParser::begin_call(std::string_view name, bool in_block) {
    space_.clear();
    pending_.clear();
    if (in_reasoning_) {
        in_reasoning_ = false;
        if (options_.reasoning == ReasoningMode::split) {
            text_has_begun_ = false;
            owes_closer_ = true;
        }
    }
    state_ = State::invoke;
    in_call_ = true;
    in_block_ = in_block;
    after_invoke_ = false;
    n_parameters_ = 0;
    call_name_ = name;
    ++n_calls_;
    emit_call(name);
}

void OutputParser::end_call() {
    emit(OutputDelta::Kind::tool_call, n_parameters_ == 0 ? "{}" : "}");
    in_call_ = false;
    after_invoke_ = true;
    state_ = in_block_ ? State::block : State::text;
}

void OutputParser::take_invoke(const Token& token) {
    switch (token.kind) {
        case TokenKind::parameter_open:
            return begin_value(token.name);
        case TokenKind::invoke_close:
            return end_call();
        case TokenKind::invoke_open:
        case TokenKind::block_close:
            end_call();
            return take(token);
        default:  // nothing else has a meaning between parameters
            return;
    }
}

// ---- arguments

void OutputParser::begin_value(std::string_view key) {
    state_ = State::value;
    types_ = tools_.types_of(call_name_, key);
    value_has_begun_ = false;
    value_.clear();
    tail_.clear();
    tail_kind_ = Tail::space;
    inner_calls_.clear();
    after_inner_block_ = false;

    escaped_ = n_parameters_++ == 0 ? "{" : ", ";
    json::append_quoted(escaped_, key);
    escaped_ += types_.is_string_only() ? ": \"" : ": ";
    emit(OutputDelta::Kind::tool_call, escaped_);
}

void OutputParser::take_value(const Token& token) {
    if (token.kind == TokenKind::space) {
        tail_ += token.raw;
        return;
    }
    const bool in_block = std::exchange(after_inner_block_, token.kind == TokenKind::block_open);
    if (!inner_calls_.empty() && !inner_calls_.back().in_value) return take_in_inner_call(token);
    switch (token.kind) {
        case TokenKind::parameter_close:
            return hold(State::after_value, token.raw);
        case TokenKind::invoke_close:
        case TokenKind::block_close: {
            const Tail kind = token.kind == TokenKind::invoke_close ? Tail::invoke_close : Tail::block_close;
            if (kind <= tail_kind_) flush_tail();
            tail_ += token.raw;
            tail_kind_ = kind;
            return;
        }
        case TokenKind::invoke_open:
            if (tools_.has(token.name)) inner_calls_.push_back({in_block, false});
            break;
        default:
            break;
    }
    flush_tail();
    put_value(token.raw);
}

// Takes a token between the parameters of a call that the value shows. Anything that could not stand there ends that call: its tag
// was only mentioned.
void OutputParser::take_in_inner_call(const Token& token) {
    if (token.kind != TokenKind::parameter_open) {
        inner_calls_.pop_back();
        return take_value(token);
    }
    inner_calls_.back().in_value = true;
    flush_tail();
    put_value(token.raw);
}

void OutputParser::take_after_value(const Token& token) {
    if (token.kind == TokenKind::space) {
        pending_ += token.raw;
        return;
    }
    if (!inner_calls_.empty()) {
        if (token.kind == TokenKind::invoke_close) {
            pending_ += token.raw;
            pending_tag_bytes_ = pending_.size();
            state_ = State::after_inner_call;
            return;
        }
        inner_calls_.back().in_value = token.kind != TokenKind::parameter_open;
        put_pending_in_value();
        return take(token);
    }
    switch (token.kind) {
        case TokenKind::invoke_open:
            pending_name_ = token.name;
            pending_ += token.raw;
            pending_tag_bytes_ = pending_.size();
            state_ = State::after_next_call;
            return;
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
void OutputParser::take_after_next_call(const Token& token) {
    switch (token.kind) {
        case TokenKind::space:
            pending_ += token.raw;
            return;
        case TokenKind::text:
        case TokenKind::parameter_close:
        case TokenKind::block_open:
            put_pending_in_value();
            return take(token);
        default:
            break;
    }
    const std::string name = pending_name_;
    end_value();
    end_call();
    begin_call(name, in_block_);
    take(token);
}

// The closers belong to the call that the value shows, unless the output goes on as it does after a call.
void OutputParser::take_after_inner_call(const Token& token) {
    const bool in_block = inner_calls_.back().in_block;
    const bool has_ended_block =
        std::string_view(pending_).substr(0, pending_tag_bytes_).ends_with(markup::k_block_close);
    switch (token.kind) {
        case TokenKind::space:
            pending_ += token.raw;
            return;
        case TokenKind::block_close:
            if (in_block && !has_ended_block) {
                pending_ += token.raw;
                pending_tag_bytes_ = pending_.size();
                return;
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
    end_call();
    take(token);
}

// The tags in pending_ turn out to be text of the value.
void OutputParser::put_pending_in_value() {
    flush_tail();
    put_value(std::string_view(pending_).substr(0, pending_tag_bytes_));
    tail_ = std::string_view(pending_).substr(pending_tag_bytes_);
    pending_.clear();
    state_ = State::value;
}

void OutputParser::put_value(std::string_view text) {
    if (text.empty()) return;
    if (!types_.is_string_only()) {
        value_ += text;
        return;
    }
    if (!value_has_begun_ && text.starts_with('\n')) text.remove_prefix(1);
    value_has_begun_ = true;
    escaped_.clear();
    json::append_escaped(escaped_, text);
    emit(OutputDelta::Kind::tool_call, escaped_);
}

void OutputParser::flush_tail() {
    put_value(tail_);
    tail_.clear();
    tail_kind_ = Tail::space;
}

void OutputParser::end_value() {
    state_ = State::invoke;
    pending_.clear();
    if (!types_.is_string_only()) {
        flush_tail();
        escaped_.clear();
        append_argument(escaped_, value_, types_);
        emit(OutputDelta::Kind::tool_call, escaped_);
        return;
    }
    // If the value is "\n" alone, its newline counts as the leading one.
    const bool only_leading = !value_has_begun_ && tail_ == "\n";
    if (tail_.ends_with('\n') && !only_leading) tail_.pop_back();
    flush_tail();
    emit(OutputDelta::Kind::tool_call, "\"");
}

// ---- the end

Finish OutputParser::finish_at(State state, std::string_view partial, Finish finish) {
    const bool was_cut = finish == Finish::length;
    bool cut_in_call = false;
    switch (state) {
        case State::start:
            if (!pending_.empty() || !partial.empty()) leave_start();
            if (!partial.empty()) put_text(partial);
            break;
        case State::text:
            if (!partial.empty()) put_text(partial);
            break;
        case State::after_closer:
            if (!partial.empty()) {
                release_pending(State::text);
                put_text(partial);
            }
            break;
        case State::after_block_open:
            cut_in_call = was_cut && (partial.starts_with("<i") || partial.starts_with('i'));
            if (cut_in_call) {
                space_.clear();
                break;
            }
            release_pending(pending_from_);
            if (!partial.empty()) put_text(partial);
            break;
        case State::after_invoke_tag:
            release_pending(State::text);
            if (!partial.empty()) put_text(partial);
            break;
        case State::block:
            cut_in_call = was_cut && (partial.starts_with("<invoke") || partial.starts_with("invoke"));
            break;
        case State::value:
        case State::after_value:
            cut_in_call = was_cut;
            if (was_cut) break;
            if (state == State::value && tail_kind_ != Tail::space) {
                tail_.clear();
                tail_kind_ = Tail::space;
            }
            end_value();
            end_call();
            break;
        case State::after_inner_call:
            if (!partial.empty() && !markup::k_block_close.starts_with(partial)) {
                put_pending_in_value();
                return finish_at(state_, partial, finish);
            }
            end_value();
            end_call();
            break;
        case State::after_next_call: {
            const std::string name = pending_name_;
            end_value();
            end_call();
            begin_call(name, in_block_);
            return finish_at(state_, partial, finish);
        }
        case State::invoke:
            cut_in_call = was_cut;
            if (!was_cut) end_call();
            break;
        case State::finished:
            return finish;
    }
    if (in_reasoning_ && options_.reasoning == ReasoningMode::split) {
        emit(OutputDelta::Kind::reasoning, without_trailing_newlines(space_));
    } else if (n_calls_ == 0) {
        flush_space();
    }
    state_ = State::finished;
    if (cut_in_call) return Finish::length;
    return n_calls_ > 0 ? Finish::tool_calls : finish;
}

// ---- deltas

void OutputParser::clear_deltas() {
    deltas_.clear();
    delta_text_.clear();
}

void OutputParser::emit(OutputDelta::Kind kind, std::string_view text) {
    if (text.empty()) return;
    const int32_t index = kind == OutputDelta::Kind::tool_call ? n_calls_ - 1 : -1;
    const size_t at = delta_text_.size();
    delta_text_ += text;
    if (!deltas_.empty() && deltas_.back().kind == kind && deltas_.back().index == index) {
        deltas_.back().end = delta_text_.size();
    } else {
        deltas_.push_back({kind, index, false, at, at, delta_text_.size()});
    }
}

void OutputParser::emit_call(std::string_view name) {
    const size_t at = delta_text_.size();
    delta_text_ += name;
    delta_text_ += '\0';
    deltas_.push_back(
        {OutputDelta::Kind::tool_call, n_calls_ - 1, true, at, delta_text_.size(), delta_text_.size()});
}

OutputDelta OutputParser::delta(size_t index) const noexcept {
    const StoredDelta& delta = deltas_[index];
    const std::string_view all = delta_text_;
    const std::string_view name =
        delta.has_name ? all.substr(delta.name_at, delta.text_at - delta.name_at - 1) : "";
    return {delta.kind, delta.index, name, delta.has_name,
            all.substr(delta.text_at, delta.end - delta.text_at)};
}

ParsedOutput parse_output(std::string_view bytes, json::Value tools, const ParserOptions& options,
                          Finish finish) {
    ParsedOutput output;
    OutputParser parser(std::move(tools), options);
    const auto add = [&] {
        for (size_t i = 0; i < parser.n_deltas(); ++i) {
            const OutputDelta delta = parser.delta(i);
            if (delta.kind == OutputDelta::Kind::tool_call) {
                if (delta.has_name) output.calls.push_back({std::string(delta.name), {}});
                output.calls.back().arguments += delta.text;
                continue;
            }
            auto& text = delta.kind == OutputDelta::Kind::reasoning ? output.reasoning : output.content;
            if (!text) text.emplace();
            *text += delta.text;
        }
    };
    parser.feed(bytes);
    add();
    output.finish = parser.finish(finish);
    add();
    if (parser.last_call_is_cut()) output.calls.pop_back();
    return output;
}

}  // namespace minim::chat
