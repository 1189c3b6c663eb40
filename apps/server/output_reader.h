// SPDX-License-Identifier: Apache-2.0
// Splits the model's output into reasoning, content and tool calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "minim/minim.h"

namespace server {

struct Delta {
    enum class Kind { reasoning, content, call };
    Kind kind = Kind::content;
    size_t call = 0;           // which call, from 0
    std::string name;          // of the function, in the first delta of a call
    std::string text;          // reasoning, content, or a fragment of the arguments
    std::string call_id = {};  // Reply sets it
};

struct OutputFormat {
    bool is_chat = true;  // false: all text is content
    int32_t reasoning = MINIM_REASONING_SPLIT;
    bool starts_in_reasoning = true;
    std::string tools;  // JSON; "": no calls are recognised
    int32_t chat_format = MINIM_CHAT_FORMAT_M2;
};

class OutputReader {
  public:
    explicit OutputReader(const OutputFormat& format);

    // Appends to `deltas`; pieces that continue the last one are added to it.
    void feed(std::string_view text, std::vector<Delta>& deltas);
    // `finish` is one of MINIM_FINISH_*. Returns "stop", "length" or "tool_calls".
    const char* finish(int32_t finish, std::vector<Delta>& deltas);

  private:
    void take(size_t count, std::vector<Delta>& deltas);

    std::unique_ptr<minim_output_parser, void (*)(minim_output_parser*)> parser_;
};

}  // namespace server
