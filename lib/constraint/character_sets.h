// SPDX-License-Identifier: Apache-2.0
// Sets of characters that expressions name: \d, \w, \s, \p{}, and both cases of letters.
#pragma once

#include <optional>
#include <string_view>

#include "constraint/code_points.h"

namespace minim::constraint {

CodePoints decimal_digits();   // \d
CodePoints word_characters();  // \w
CodePoints white_space();      // \s
CodePoints line_ends();        // what '.' leaves out

// Returns the characters of \p{name}: a general category or a group of categories by its short or long name, "Any",
// "ASCII" or "White_Space". The name may begin with "gc=" or "General_Category=". Returns nothing for other names.
std::optional<CodePoints> characters_of_property(std::string_view name);

// Returns the set with the other case of each letter added (simple case mapping, ASCII letters among themselves).
CodePoints with_both_cases(const CodePoints& set);

}  // namespace minim::constraint
