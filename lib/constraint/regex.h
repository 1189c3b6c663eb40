// Regular expressions as automata.
#pragma once

#include <string_view>

#include "constraint/grammar.h"
#include "constraint/regex_tree.h"
#include "constraint/text_automaton.h"

namespace minim::constraint {

enum class Match : uint8_t {
    whole,     // the pattern is the whole text
    anywhere,  // it occurs in the text, unless ^ and $ tie it to the ends: what JSON Schema means
};

// The texts that fit the expression, with its look-around. Throws unsupported, with `where` in front, if it takes too
// large an automaton or a lookahead stands in a lookbehind.
TextAutomaton automaton_of(const RegexNode& tree, Match match, std::string_view where);

// Throws what parse_regex does too.
TextAutomaton automaton_of(std::string_view pattern, Match match, std::string_view where = {});

// Texts that fit the expression.
Grammar grammar_of_regex(std::string_view pattern, Match match = Match::whole);

}  // namespace minim::constraint
