// SPDX-License-Identifier: Apache-2.0
// Parses the output of a MiniMax-M2 model while it is generated: reasoning, content, and tool calls with arguments as
// JSON. A state machine over tags and text (tag_lexer.h) that finds where calls begin. It holds back only text that may become
// a tag, and whitespace that may be trailing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "chat/call_parser.h"
#include "chat/delta_list.h"
#include "chat/reasoning_splitter.h"
#include "chat/tag_lexer.h"
#include "tokenizer/stream_decoder.h"

namespace minim::chat {

enum class Finish : uint8_t { stop, length, tool_calls };

class OutputParser {
  public:
    // `tools`: as ToolSet takes them; without any there are no tool calls, and their tags are text.
    OutputParser(json::Value tools, const ParserOptions& options)
        : text_(options, deltas_), call_(std::move(tools), deltas_) {}
    OutputParser(const OutputParser&) = delete;
    OutputParser& operator=(const OutputParser&) = delete;

    // Parses further output. Its deltas, in order, can be read with delta() until the next call. Neighbours differ in
    // kind or index.
    void feed(std::string_view bytes);
    // Ends the output: feed() must not be called any more. `finish` is stop or length. Returns it, or tool_calls.
    Finish finish(Finish finish);

    size_t n_deltas() const noexcept { return deltas_.size(); }
    const OutputDelta& delta(size_t index) const noexcept { return deltas_[index]; }
    bool is_finished() const noexcept { return is_finished_; }
    // Returns whether the output was cut in the last tool call of the deltas: it must not be executed.
    bool last_call_is_cut() const noexcept { return is_finished_ && call_.is_open(); }

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
    void take_all();
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

    tokenizer::StreamDecoder decoder_;
    std::string decoded_;
    TagLexer lexer_;
    DeltaList deltas_;
    ReasoningSplitter text_;
    CallParser call_;

    State state_ = State::start;  // outside of calls
    PendingTag pending_;
    State pending_from_ = State::text;
    bool after_call_ = false;  // no text has come after the last call
    bool is_finished_ = false;
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
