// SPDX-License-Identifier: Apache-2.0
// The literal strings of the MiniMax-M2 chat format, for parsing, constraining and rendering.
#pragma once

#include <string_view>

namespace minim::chat::markup {

inline constexpr std::string_view k_think_open = "<think>";
inline constexpr std::string_view k_think_close = "</think>";
inline constexpr std::string_view k_block_open = "<minimax:tool_call>";
inline constexpr std::string_view k_block_close = "</minimax:tool_call>";
inline constexpr std::string_view k_invoke_open = "<invoke name=";  // then the name in quotes, and ">"
inline constexpr std::string_view k_invoke_close = "</invoke>";
inline constexpr std::string_view k_parameter_open = "<parameter name=";  // then the key in quotes, and ">"
inline constexpr std::string_view k_parameter_close = "</parameter>";

// The whitespace that may stand between tags. U+00A0 and the like are text.
inline constexpr std::string_view k_space = " \t\r\n";

constexpr bool is_space(char c) noexcept {
    return k_space.find(c) != std::string_view::npos;
}

// Returns whether a prompt ends in an open think block: in its tag, or in the tag and white space.
constexpr bool opens_thinking(std::string_view prompt) noexcept {
    while (!prompt.empty() && is_space(prompt.back())) prompt.remove_suffix(1);
    return prompt.ends_with(k_think_open);
}

}  // namespace minim::chat::markup
