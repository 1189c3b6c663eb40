// SPDX-License-Identifier: Apache-2.0
// Categories of code points, and their classes as far as the pre-tokenizer's pattern distinguishes them. The tables are Unicode 16.0.0, the
// version that the `tokenizers` package uses; other versions differ only in code points assigned in between.
#pragma once

#include <cstdint>
#include <string_view>

namespace minim::tokenizer {

enum class UnicodeClass : uint8_t {
    other,            // everything not below, unassigned code points too
    upper_letter,     // Lu, Lt
    lower_letter,     // Ll
    caseless_letter,  // Lm, Lo
    mark,             // Mn, Mc, Me
    number,           // Nd, Nl, No
    white_space,      // property White_Space
};

// `code_point` is at most U+10FFFF.
UnicodeClass unicode_class(char32_t code_point) noexcept;
std::string_view general_category(char32_t code_point) noexcept;  // "Lu"

}  // namespace minim::tokenizer
