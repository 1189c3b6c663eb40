// The class of a code point as the pre-tokenizer's pattern tells them apart. The tables are Unicode 16.0.0,
// the version the `tokenizers` package matches with; another version differs only for code points assigned
// before or after it.
#pragma once

#include <cstdint>

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

}  // namespace minim::tokenizer
