// SPDX-License-Identifier: Apache-2.0
// Regular expressions as trees: the syntax of ECMA-262, with regular extensions that other dialects have.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "constraint/code_points.h"

namespace minim::constraint {

struct RegexNode {
    enum class Kind : uint8_t {
        characters,  // one of `set`
        sequence,    // of `nodes`
        choice,      // of `nodes`
        repeat,      // `least` to `most` times nodes[0]
        text_start,  // ^
        text_end,    // $
        word_edge,   // \b, or \B if `is_negated`
        look,        // nodes[0] stands ahead or behind, or does not if `is_negated`
    };
    Kind kind = Kind::sequence;
    CodePoints set{};
    std::vector<RegexNode> nodes{};
    int64_t least = 0;
    int64_t most = 0;  // -1: no end
    bool is_negated = false;
    bool is_behind = false;
};

// Parses an expression. Throws invalid if it is not a regular expression, and unsupported for constructs that no
// automaton can express (back references) or that are not implemented. The message begins with `where`, if any, and
// names the byte.
RegexNode parse_regex(std::string_view pattern, std::string_view where = {});

// Make trees without parsing.
RegexNode characters_node(CodePoints set);
RegexNode character_range_node(char32_t first, char32_t last);
RegexNode text_node(std::string_view ascii);
RegexNode sequence_node(std::vector<RegexNode> nodes);  // of none: the empty text
RegexNode choice_node(std::vector<RegexNode> nodes);    // of none: no text at all
RegexNode repeat_node(RegexNode node, int64_t least, int64_t most);
RegexNode optional_node(RegexNode node);

}  // namespace minim::constraint
