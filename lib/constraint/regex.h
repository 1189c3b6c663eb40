// Regular expressions as grammar: the part of ECMA-262's syntax that describes a regular language.
#pragma once

#include <functional>
#include <string_view>

#include "constraint/code_points.h"
#include "constraint/grammar.h"

namespace minim::constraint {

enum class Match : uint8_t {
    whole,     // the pattern is the whole text
    anywhere,  // it occurs in the text, unless ^ and $ tie it to the ends: what JSON Schema means
};

// How one character of a set is written where the expression is used.
using Spelling = std::function<Part(const CodePoints&)>;

// Throws invalid for what is no regular expression and unsupported for what is no regular language or not
// known here (look-around, back references, \b, \p, flags), naming the byte where it stands.
Part regex(Grammar& grammar, std::string_view pattern, Match match, const Spelling& spelling);

// Characters as they are in UTF-8. The grammar must outlive it.
Spelling utf8_spelling(Grammar& grammar);

// Texts that fit the expression.
Grammar grammar_of_regex(std::string_view pattern, Match match = Match::whole);

}  // namespace minim::constraint
