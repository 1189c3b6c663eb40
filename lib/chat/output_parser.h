// SPDX-License-Identifier: Apache-2.0
// Parses the output of a model while it is generated: reasoning, content, and tool calls with arguments as JSON. Each family
// has a state machine of its own (tag_output.h, element_output.h). It holds back only text that may become a tag, and whitespace
// that may be trailing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "chat/delta_list.h"
#include "chat/element_output.h"
#include "chat/reasoning_splitter.h"
#include "chat/tag_output.h"
#include "tokenizer/stream_decoder.h"

namespace minim::chat {

enum class Finish : uint8_t { stop, length, tool_calls };

class OutputParser {
  public:
    // `tools`: as ToolSet takes them; without any there are no tool calls, and their tags are text.
    OutputParser(json::Value tools, const ParserOptions& options);
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
    bool last_call_is_cut() const { return is_finished_ && call_is_open(); }

  private:
    bool call_is_open() const {
        return std::visit([](const auto& output) { return output.call_is_open(); }, output_);
    }
    void take_decoded();

    tokenizer::StreamDecoder decoder_;
    std::string decoded_;
    DeltaList deltas_;
    std::variant<TagOutput, ElementOutput> output_;
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
