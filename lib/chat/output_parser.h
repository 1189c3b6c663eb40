// SPDX-License-Identifier: Apache-2.0
// Parses the output of a MiniMax-M2 model while it is generated: reasoning, content, and tool calls with arguments as
// JSON. A state machine over tags and text (tag_lexer.h). It holds back only text that may become a tag, and
// whitespace that may be trailing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/argument_value.h"
#include "chat/tag_lexer.h"
#include "tokenizer/stream_decoder.h"

namespace minim::chat {

enum class ReasoningMode : uint8_t {
    split,         // reasoning and content separately, without the tags
    append_think,  // all in the content, after a "<think>"
    none,          // all in the content
};

enum class Finish : uint8_t { stop, length, tool_calls };

struct ParserOptions {
    ReasoningMode reasoning = ReasoningMode::split;
    bool starts_in_reasoning = true;  // the prompt ends with an open think block
};

struct OutputDelta {
    enum class Kind : uint8_t { reasoning, content, tool_call };
    Kind kind = Kind::content;
    int32_t index = -1;     // of the tool call
    std::string_view name;  // of the function, in the first delta of a call
    bool has_name = false;
    std::string_view text;  // arguments: a fragment of their JSON
};

class OutputParser {
  public:
    // `tools`: as ToolSet takes them; without any there are no tool calls, and their tags are text.
    OutputParser(json::Value tools, const ParserOptions& options);

    // Parses further output. Its deltas, in order, can be read with delta() until the next call. Neighbours differ in
    // kind or index.
    void feed(std::string_view bytes);
    // Ends the output: feed() must not be called any more. `finish` is stop or length. Returns it, or tool_calls.
    Finish finish(Finish finish);

    size_t n_deltas() const noexcept { return deltas_.size(); }
    OutputDelta delta(size_t index) const noexcept;
    bool is_finished() const noexcept { return state_ == State::finished; }
    // Returns whether the output was cut in the last tool call of the deltas: it must not be executed.
    bool last_call_is_cut() const noexcept { return state_ == State::finished && in_call_; }

  private:
    enum class State : uint8_t {
        start,             // nothing but whitespace so far
        text,              // reasoning or content
        after_closer,      // after a </think> at the start of the content
        after_block_open,  // after <minimax:tool_call> and whitespace: a block if an invoke tag follows
        after_invoke_tag,  // after an invoke tag without a block: a call if a parameter or </invoke> follows
        block,             // between calls
        invoke,            // between parameters
        value,             // within a parameter
        after_value,       // after </parameter> and whitespace: data unless a tag follows
        after_next_call,   // after </parameter> and an invoke tag: the next call unless text follows
        after_inner_call,  // after </parameter></invoke>, and perhaps the block's closer, of a call that a value shows
        finished,
    };
    // The content of tail_, which may be the end of a value: whitespace only, or also this closer.
    enum class Tail : uint8_t { space, invoke_close, block_close };

    struct StoredDelta {
        OutputDelta::Kind kind;
        int32_t index;
        bool has_name;
        size_t name_at;
        size_t text_at;
        size_t end;
    };

    TagSet wanted() const noexcept;
    TagSet wanted_in_text() const noexcept;
    TagSet wanted_in_block() const noexcept;
    void run();
    void take(const Token& token);
    void take_start(const Token& token);
    void take_text(const Token& token);
    void take_after_closer(const Token& token);
    void take_after_block_open(const Token& token);
    void take_after_invoke_tag(const Token& token);
    void take_block(const Token& token);
    void take_invoke(const Token& token);
    void take_value(const Token& token);
    void take_in_inner_call(const Token& token);
    void take_after_value(const Token& token);
    void take_after_next_call(const Token& token);
    void take_after_inner_call(const Token& token);

    void leave_start();
    void end_reasoning();
    void hold(State state, std::string_view tag);
    void release_pending(State state);
    void put_text(std::string_view text);
    void put_space(std::string_view space);
    void flush_space();
    bool may_close_again() const noexcept;

    void begin_call(std::string_view name, bool in_block);
    void end_call();
    void begin_value(std::string_view key);
    void put_value(std::string_view text);
    void flush_tail();
    void put_pending_in_value();
    void end_value();

    Finish finish_at(State state, std::string_view partial, Finish finish);
    void emit(OutputDelta::Kind kind, std::string_view text);
    void emit_call(std::string_view name);
    void clear_deltas();

    ToolSet tools_;
    ParserOptions options_;
    tokenizer::StreamDecoder decoder_;
    std::string decoded_;
    TagLexer lexer_;

    State state_ = State::start;
    bool in_reasoning_;
    bool owes_closer_ = false;     // a call has ended the reasoning, so that its </think> may still come
    bool text_has_begun_ = false;  // of the reasoning, then of the content
    std::string space_;            // whitespace that is left out if it turns out to be trailing

    std::string pending_;  // a tag and the whitespace after it: text unless the right tag follows
    size_t pending_tag_bytes_ = 0;
    std::string pending_name_;
    State pending_from_ = State::text;

    bool in_call_ = false;
    bool in_block_ = false;      // the call is in a block
    bool after_invoke_ = false;  // directly after an </invoke>
    int32_t n_calls_ = 0;
    size_t n_parameters_ = 0;
    std::string call_name_;

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

    std::vector<StoredDelta> deltas_;
    std::string delta_text_;
};

struct ParsedOutput {
    struct Call {
        std::string name;
        std::string arguments;
    };
    std::optional<std::string> content;
    std::optional<std::string> reasoning;
    std::vector<Call> calls;  // without one that was cut
    Finish finish = Finish::stop;
};

// Parses a whole output. Returns the sum of the deltas.
ParsedOutput parse_output(std::string_view bytes, json::Value tools, const ParserOptions& options,
                          Finish finish);

}  // namespace minim::chat
