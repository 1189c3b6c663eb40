// SPDX-License-Identifier: Apache-2.0
// Regular expressions as nondeterministic automata over characters: the step between their trees and regex.h.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "constraint/code_points.h"
#include "constraint/regex_tree.h"

namespace minim::constraint {

struct RegexState {
    enum class Kind : uint8_t {
        split,       // to `out` or `other`; either may be -1
        characters,  // to `out` by a character of set `value`
        ahead,       // to `out` if a text of the states from `value` on comes next, or not
        behind,      // to `out` if lookbehind `value` holds here, or not
        text_start,  // to `out` if nothing is before
        word_edge,   // to `out` at a boundary of a word (\b), or if not at one (\B)
        found,       // the text of a look-around has been found
        accept,      // the whole text
    };
    Kind kind;
    bool is_negated = false;
    int32_t value = -1;
    int32_t out = -1;
    int32_t other = -1;
};

struct RegexNfa {
    std::vector<RegexState> states;
    std::vector<CodePoints> sets;  // no two alike
    std::vector<int32_t> behinds;  // start states of lookbehinds, inner ones before outer ones
    int32_t start = -1;
    int32_t any = -1;   // finds one character
    int32_t word = -1;  // finds one word character
    bool has_text_start = false;
    bool has_word_edge = false;
};

// Makes an NFA; `is_anywhere` allows any text on both sides. Throws unsupported, with `where` in front, if it has too many
// states or a lookahead inside a lookbehind.
RegexNfa make_regex_nfa(const RegexNode& tree, bool is_anywhere, std::string_view where);

}  // namespace minim::constraint
