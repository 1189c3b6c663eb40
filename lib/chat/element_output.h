// SPDX-License-Identifier: Apache-2.0
// Parses the output of a MiniMax-M3 model: finds where reasoning ends and where calls begin. A state machine over tags and text
// (element_lexer.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "chat/delta_list.h"
#include "chat/element_lexer.h"
#include "chat/element_parser.h"
#include "chat/reasoning_splitter.h"

namespace minim::chat {

class ElementOutput {
  public:
    // `deltas` gets the output.
    ElementOutput(json::Value tools, const ParserOptions& options, DeltaList& deltas)
        : options_(options), text_(options, deltas), call_(std::move(tools), deltas) {}

    void feed(std::string_view text);
    // Ends the output. Returns whether it was cut where a call begins, or within one.
    bool finish(bool was_cut);
    bool call_is_open() const noexcept { return call_.is_open(); }

  private:
    enum class State : uint8_t {
        start,             // nothing but whitespace so far
        text,              // reasoning or content
        after_block_open,  // after <tool_call> and whitespace: a block if an invoke tag follows
        block,             // between calls
    };

    ElementTags wanted() const noexcept;
    ElementTags wanted_in_text() const noexcept;
    ElementTags wanted_in_block() const noexcept;
    void take(const ElementToken& token);
    void take_start(const ElementToken& token);
    void take_text(const ElementToken& token);
    void take_after_block_open(const ElementToken& token);
    void take_block(const ElementToken& token);

    void leave_start();
    void hold_block_open(const ElementToken& token);
    void release_pending();
    void put_text(std::string_view text);
    void begin_call(std::string_view name, State after);
    bool finish_text(std::string_view partial, bool was_cut);

    const ParserOptions options_;
    ElementLexer lexer_;
    ReasoningSplitter text_;
    ElementParser call_;

    State state_ = State::start;  // outside of calls
    std::string pending_;         // start: whitespace; after_block_open: the block's tag
    std::string pending_space_;   // after_block_open: whitespace after the tag
    bool pending_has_mark_ = false;
    State pending_from_ = State::text;
    bool after_call_ = false;  // no text has come after the last call
};

}  // namespace minim::chat
