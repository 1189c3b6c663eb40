// SPDX-License-Identifier: Apache-2.0
// Parses a tool call from its invoke tag to its end, and gives the arguments as JSON while they come. A value ends where its
// closing tag and what follows it agree: until then the tag may be text of the value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/argument_value.h"
#include "chat/delta_list.h"
#include "chat/tag_lexer.h"

namespace minim::chat {

// A tag and what follows it: text, unless the right tag comes next.
struct PendingTag {
    std::string text;      // of the tag, or of several, and the whitespace after it
    size_t tag_bytes = 0;  // without that whitespace
    std::string name;      // of an invoke tag

    void add_tag(std::string_view tag) {
        text += tag;
        tag_bytes = text.size();
    }
    std::string_view tag() const noexcept { return std::string_view(text).substr(0, tag_bytes); }
    std::string_view space() const noexcept { return std::string_view(text).substr(tag_bytes); }
};

class CallParser {
  public:
    // `deltas` gets the calls.
    CallParser(json::Value tools, DeltaList& deltas) : tools_(std::move(tools)), deltas_(deltas) {}

    const ToolSet& tools() const noexcept { return tools_; }
    bool is_open() const noexcept { return state_ != State::closed; }

    void begin(std::string_view name);
    // Returns the tags to look for in an open call.
    TagSet wanted() const noexcept;
    // Takes a token in an open call. Returns false if the call has ended before it.
    bool take(const Token& token);
    // Ends an open call with the output; `partial` is its last text if that may be the beginning of a tag. If the output was cut
    // within the call, the call stays open.
    void finish(std::string_view partial, bool was_cut);

  private:
    enum class State : uint8_t {
        closed,
        invoke,           // between parameters
        value,            // within a parameter
        after_value,      // after </parameter> and whitespace: data unless a tag follows
        after_next_call,  // after </parameter> and an invoke tag: the next call unless text follows
        after_inner_call,  // after </parameter></invoke>, and perhaps the block's closer, of a call that a value shows
    };
    // The content of tail_, which may be the end of a value: whitespace only, or also this closer.
    enum class Tail : uint8_t { space, invoke_close, block_close };

    bool take_invoke(const Token& token);
    bool take_value(const Token& token);
    bool take_in_inner_call(const Token& token);
    bool take_after_value(const Token& token);
    bool take_after_next_call(const Token& token);
    bool take_after_inner_call(const Token& token);
    void end();
    void begin_next();
    void begin_value(std::string_view key);
    void put_value(std::string_view text);
    void flush_tail();
    void put_pending_in_value();
    void end_value();

    const ToolSet tools_;
    DeltaList& deltas_;
    State state_ = State::closed;
    int64_t n_parameters_ = 0;
    std::string name_;
    PendingTag pending_;

    TypeSet types_;
    bool value_has_begun_ = false;
    std::string value_;  // the text so far of a value that is not a plain string
    std::string tail_;   // whitespace and closers that a value may end with
    Tail tail_kind_ = Tail::space;
    std::string escaped_;
    // A value may show calls, for example of the format. Their closers are text.
    struct InnerCall {
        bool in_block;
        bool in_value;
    };
    std::vector<InnerCall> inner_calls_;  // calls that are open in the value, outermost first
    bool after_inner_block_ = false;      // directly after a <minimax:tool_call> in the value
};

}  // namespace minim::chat
