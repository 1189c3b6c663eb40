// SPDX-License-Identifier: Apache-2.0
// Checks whether texts fit a grammar, byte by byte.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "constraint/automaton.h"
#include "constraint/json_schema.h"
#include "constraint/positions.h"
#include "constraint/regex.h"
#include "support/catch.h"

namespace minim::constraint::testing {

class Language {
  public:
    explicit Language(const Grammar& grammar)
        : automaton_(make_automaton(grammar, 64)),
          positions_(automaton_),
          start_(positions_.start_of(automaton_.start_rule)) {}

    bool has(std::string_view text) {
        const int32_t end = after(text);
        return end != Positions::k_dead && positions_.may_end(end);
    }
    bool has_start(std::string_view text) { return after(text) != Positions::k_dead; }
    bool must_end_after(std::string_view text) {
        const int32_t end = after(text);
        return end != Positions::k_dead && positions_.must_end(end);
    }
    const Automaton& automaton() const { return automaton_; }

  private:
    int32_t after(std::string_view text) { return positions_.read(start_, text); }

    Automaton automaton_;
    Positions positions_;
    int32_t start_;
};

// Takes a reference: `only(grammar, grammar.call(x))` changes the grammar in its other argument, and arguments are evaluated in any order.
inline Grammar only(const Grammar& grammar, Part part) {
    Grammar copy = grammar;
    copy.start_with(part);
    return copy;
}

inline Language of_regex(std::string_view pattern, Match match = Match::whole) {
    return Language(grammar_of_regex(pattern, match));
}

inline Language of_schema(std::string_view schema) {
    return Language(grammar_of_schema(json::parse(schema, "schema", json::Source::argument)));
}

// Texts that fit what `form` describes, and others.
struct Example {
    const char* form;
    std::vector<std::string> good;
    std::vector<std::string> bad;
};

template <typename MakeLanguage>
void check_examples(const std::vector<Example>& examples, MakeLanguage make_language) {
    for (const Example& example : examples) {
        INFO(example.form);
        Language language = make_language(example.form);
        for (const std::string& text : example.good) {
            INFO("good: " << text);
            CHECK(language.has(text));
        }
        for (const std::string& text : example.bad) {
            INFO("bad: " << text);
            CHECK_FALSE(language.has(text));
        }
    }
}

}  // namespace minim::constraint::testing
