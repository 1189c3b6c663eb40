// SPDX-License-Identifier: Apache-2.0
// Regular expressions as automata.
#pragma once

#include <string_view>

#include "constraint/grammar.h"
#include "constraint/regex_tree.h"
#include "constraint/text_automaton.h"

namespace minim::constraint {

enum class Match : uint8_t {
    whole,     // the pattern is the whole text
    anywhere,  // it occurs in the text, unless ^ and $ anchor it: as in JSON Schema
};

// Returns the texts that fit the expression, with its look-around. Throws unsupported, beginning with `where`, if the
// automaton is too large or a lookahead is in a lookbehind.
TextAutomaton automaton_of(const RegexNode& tree, Match match, std::string_view where);

// Also throws what parse_regex does.
TextAutomaton automaton_of(std::string_view pattern, Match match, std::string_view where = {});

// Returns the texts that fit the expression.
Grammar grammar_of_regex(std::string_view pattern, Match match = Match::whole);

}  // namespace minim::constraint
