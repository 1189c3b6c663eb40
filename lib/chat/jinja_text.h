// SPDX-License-Identifier: Apache-2.0
// Python's string operations on marked text. Characters are code points; texts are valid UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "chat/marked_text.h"

namespace minim::chat::jinja {

size_t count_characters(std::string_view text) noexcept;
// Returns the byte offsets of all characters, and the size as the last entry.
std::vector<size_t> character_offsets(std::string_view text);

enum class Side : uint8_t { left = 1, right = 2, both = 3 };

// Removes these characters from the ends; without `characters`, removes whitespace.
MarkedText strip(const MarkedText& text, Side side, const std::string_view* characters);
// Split a text at each separator; without one, at runs of whitespace. They make at most `most` splits; negative: no limit.
std::vector<MarkedText> split(const MarkedText& text, const std::string_view* separator, int64_t most);
std::vector<MarkedText> split_from_right(const MarkedText& text, std::string_view separator, int64_t most);
std::vector<MarkedText> split_lines(const MarkedText& text, bool keep_ends);
MarkedText replace(const MarkedText& text, std::string_view old, const MarkedText& with, int64_t most);

enum class Case : uint8_t {
    upper,
    lower,
    capitalised,   // the first character in upper case, the others in lower
    title,         // str.title(): as capitalised, after each character that is not a letter
    title_filter,  // Jinja's filter: as capitalised, after whitespace and - ( { [ <
};
// Changes the case of ASCII texts. Throws Status::unsupported for other texts.
MarkedText change_case(const MarkedText& text, Case to);

}  // namespace minim::chat::jinja
