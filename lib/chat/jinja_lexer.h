// SPDX-License-Identifier: Apache-2.0
// Splits a Jinja template into text and the tokens of its tags, with the settings of Hugging Face: trim_blocks and
// lstrip_blocks. It also handles comments, whitespace control and raw blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minim::chat::jinja {

enum class Lexeme : uint8_t {
    data,  // text between tags
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    real,
    symbol,  // an operator or bracket
    end,
};

struct JinjaToken {
    Lexeme kind = Lexeme::end;
    std::string text;  // of string: its value
    size_t line = 1;
};

// Throws Status::unsupported with the line. The last token is `end`.
std::vector<JinjaToken> tokenize(std::string_view source);

// Returns str.isspace() of one code point.
bool is_python_space(char32_t code_point) noexcept;

[[noreturn]] void refuse_template(size_t line, std::string_view why);

}  // namespace minim::chat::jinja
