// SPDX-License-Identifier: Apache-2.0
// The literal strings of the chat formats, for parsing, constraining and rendering. A model has the format of its family.
#pragma once

#include <cstdint>
#include <string_view>

namespace minim::chat {

// Values equal the MINIM_CHAT_FORMAT_* constants of minim.h.
enum class Family : uint8_t { m2, m3 };

struct Markup {
    Family family;
    std::string_view think_open;
    std::string_view think_close;
    std::string_view closing;  // what the template writes where reasoning ends
    std::string_view mark;     // M3: stands before each tag of a call, also those of arguments; M2: none
    std::string_view block_open;
    std::string_view block_close;
    std::string_view invoke_open;  // then the name in quotes, and ">"
    std::string_view invoke_close;
    std::string_view parameter_open;   // M2: then the key in quotes, and ">"; M3: then the key, and ">"
    std::string_view parameter_close;  // M3: then the key, and ">"
};

inline constexpr Markup k_m2 = {
    .family = Family::m2,
    .think_open = "<think>",
    .think_close = "</think>",
    .closing = "\n</think>\n\n",
    .mark = "",
    .block_open = "<minimax:tool_call>",
    .block_close = "</minimax:tool_call>",
    .invoke_open = "<invoke name=",
    .invoke_close = "</invoke>",
    .parameter_open = "<parameter name=",
    .parameter_close = "</parameter>",
};

inline constexpr Markup k_m3 = {
    .family = Family::m3,
    .think_open = "<mm:think>",
    .think_close = "</mm:think>",
    .closing = "</mm:think>",
    .mark = "]<]minimax[>[",
    .block_open = "<tool_call>",
    .block_close = "</tool_call>",
    .invoke_open = "<invoke name=",
    .invoke_close = "</invoke>",
    .parameter_open = "<",
    .parameter_close = "</",
};

// The name of each element of a list in a call of M3.
inline constexpr std::string_view k_m3_item = "item";

constexpr const Markup& markup_of(Family family) noexcept {
    return family == Family::m3 ? k_m3 : k_m2;
}

// Returns what a block of calls begins with: the text of one token.
constexpr std::string_view call_begin(const Markup& markup) noexcept {
    return markup.mark.empty() ? markup.block_open : markup.mark;
}

namespace markup {

// The whitespace that may stand between tags. U+00A0 and the like are text.
inline constexpr std::string_view k_space = " \t\r\n";

constexpr bool is_space(char c) noexcept {
    return k_space.find(c) != std::string_view::npos;
}

// Returns whether a prompt ends in an open think block: in its tag, or in the tag and white space.
constexpr bool opens_thinking(std::string_view prompt, const Markup& of) noexcept {
    while (!prompt.empty() && is_space(prompt.back())) prompt.remove_suffix(1);
    return prompt.ends_with(of.think_open);
}

}  // namespace markup
}  // namespace minim::chat
