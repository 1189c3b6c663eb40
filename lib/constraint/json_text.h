// SPDX-License-Identifier: Apache-2.0
// The elements of JSON texts as parts of a grammar, for json_schema.h and tool_calls.h. White space is allowed as in
// JSON, but bounded: otherwise a constrained model might fill an answer with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "constraint/code_points.h"
#include "constraint/grammar.h"
#include "constraint/text_automaton.h"

namespace minim::constraint {

class JsonText {
  public:
    explicit JsonText(Grammar& grammar);

    Grammar& grammar() noexcept { return grammar_; }

    // Accepts nothing, one space, or one or two newlines with indentation.
    Part space() { return grammar_.call(space_); }

    Part string() { return grammar_.call(string_); }
    Part quoted(Part inside);
    Part any_character();  // inside a string, in each of its spellings
    // Returns how one character of a set is written inside a string: escaped only if necessary, or in each of its
    // spellings if the set has all characters.
    Spelling spelling();

    Part integer() { return grammar_.call(integer_); }
    Part number() { return grammar_.call(number_); }
    Part boolean();
    Part null() { return grammar_.text("null"); }

    // Accepts exactly this value, with free white space between its parts. A whole number may also be written without
    // its point.
    Part literal(const json::Value& value);
    Part literal(std::string_view string);

    // Accepts any JSON value, also arrays and objects.
    Part value();
    Part array(Part item, int64_t least, int64_t most);
    // Accepts an object of `least` to `most` members, each `"key": value` (`most` < 0: any number).
    Part object(Part member, int64_t least, int64_t most);
    Part member(Part key, Part value);
    // `open item , item ... close`, with space around everything; no items: `open close`.
    Part list(char open, Part items, char close);
    Part comma();

  private:
    void define_any_value();

    Grammar& grammar_;
    RuleId space_;
    RuleId rare_character_;  // an escape or one beyond ASCII
    RuleId string_;
    RuleId integer_;
    RuleId number_;
    Spelling beyond_ascii_;
    std::optional<RuleId> value_;
};

}  // namespace minim::constraint
