// SPDX-License-Identifier: Apache-2.0
// Parses the output of a MiniMax-M2 model: finds where reasoning ends and where calls begin. A state machine over tags and text
// (tag_lexer.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "chat/call_parser.h"
#include "chat/delta_list.h"
#include "chat/reasoning_splitter.h"
#include "chat/tag_lexer.h"

namespace minim::chat {

class TagOutput {
  public:
    // `deltas` gets the output.
    TagOutput(json::Value tools, const ParserOptions& options, DeltaList& deltas)
        : text_(options, deltas), call_(std::move(tools), deltas) {}

    void feed(std::string_view text);
    // Ends the output. Returns whether it was cut where a call begins, or within one.
    bool finish(bool was_cut);
    bool call_is_open() const noexcept { return call_.is_open(); }

  private:
    enum class State : uint8_t {
        start,             // nothing but whitespace so far
        text,              // reasoning or content
        after_closer,      // after a </think> at the start of the content
        after_block_open,  // after <minimax:tool_call> and whitespace: a block if an invoke tag follows
        after_invoke_tag,  // after an invoke tag without a block: a call if a parameter or </invoke> follows
        block,             // between calls
    };

    TagSet wanted() const noexcept;
    TagSet wanted_in_text() const noexcept;
    TagSet wanted_in_block() const noexcept;
    void take(const Token& token);
    void take_start(const Token& token);
    void take_text(const Token& token);
    void take_after_closer(const Token& token);
    void take_after_block_open(const Token& token);
    void take_after_invoke_tag(const Token& token);
    void take_block(const Token& token);

    void leave_start();
    void hold(State state, const Token& token);
    void release_pending(State state);
    void put_text(std::string_view text);
    void begin_call(std::string_view name, State after);
    bool finish_text(std::string_view partial, bool was_cut);

    TagLexer lexer_;
    ReasoningSplitter text_;
    CallParser call_;

    State state_ = State::start;  // outside of calls
    PendingTag pending_;
    State pending_from_ = State::text;
    bool after_call_ = false;  // no text has come after the last call
};

}  // namespace minim::chat
