// SPDX-License-Identifier: Apache-2.0
// The characters that Python's repr() prints unchanged; it escapes all others.
#pragma once

namespace minim::chat {

// Returns str.isprintable() of one code point, by the categories of Unicode 14: letters, marks, numbers, punctuation,
// symbols and U+0020 are printable; controls, formats, surrogates, private use, unassigned and other
// separators are not.
bool is_printable(char32_t code_point) noexcept;

}  // namespace minim::chat
