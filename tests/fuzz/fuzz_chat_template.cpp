// SPDX-License-Identifier: Apache-2.0
// Any bytes as a chat template: it is refused, fails, or prints a conversation, within bounds.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/render.h"

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

constexpr std::string_view k_messages =
    R"([{"role": "system", "content": "S\u00e9"}, {"role": "user", "content": "a [e~[ b"},
    {"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [{"id": "c", "type": "function",
     "function": {"name": "f", "arguments": {"k": [1, 2.5, null, true, "x"]}}}]},
    {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "t"}, 7]}])";
constexpr std::string_view k_tools =
    R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])";

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const size_t length = minim::utf8_sequence_length(text);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    try {
        const auto parsed = minim::chat::parse_template({reinterpret_cast<const char*>(data), size});
        const auto segments = minim::chat::render(parsed, k_messages, k_tools,
                                                  R"({"x": 1, "y": "\u00e4b", "z": {"a": []}})", {});
        for (size_t i = 0; i < segments.size(); ++i) {
            require(!segments[i].text.empty());
            require(i == 0 || segments[i].is_user_text != segments[i - 1].is_user_text);
        }
        require(is_utf8(minim::chat::join(segments)));
    } catch (const minim::Error& error) {
        require(error.status() == minim::Status::invalid || error.status() == minim::Status::unsupported);
    }
    return 0;
}
