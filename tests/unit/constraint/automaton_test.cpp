// SPDX-License-Identifier: Apache-2.0
#include "constraint/automaton.h"

#include <string>
#include <string_view>

#include "base/error.h"
#include "support.h"
#include "support/catch.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::constraint;
using namespace minim::constraint::testing;
using minim::test::expect_error;

TEST_CASE("rules may call themselves in the middle") {
    Grammar grammar;
    const RuleId nested = grammar.declare("nested");
    grammar.define(nested, grammar.sequence({grammar.text("("), grammar.repeat(grammar.call(nested), 0, -1),
                                             grammar.text(")")}));
    grammar.start_with(nested);
    Language language(grammar);
    CHECK(language.has("(()(()))"));
    CHECK_FALSE(language.has("(()"));
    CHECK(language.has_start("(()"));
    CHECK_FALSE(language.has_start("())"));
    CHECK(language.must_end_after("()"));
    const std::string deep(5000, '(');
    CHECK(language.has(deep + std::string(5000, ')')));
    CHECK_FALSE(language.has(deep + std::string(4999, ')')));
}

TEST_CASE("a rule may be empty, and be called twice in a row") {
    Grammar grammar;
    const RuleId space = grammar.add_rule("space", grammar.repeat(grammar.text(" "), 0, 2));
    const Part call = grammar.call(space);
    grammar.start_with(grammar.add_rule("answer", grammar.sequence({call, call, grammar.text("a"), call})));
    Language language(grammar);
    for (const char* good : {"a", " a", "    a", "  a  "}) CHECK(language.has(good));
    for (const char* bad : {"", "     a", "a   ", "aa"}) CHECK_FALSE(language.has(bad));
    CHECK_FALSE(language.must_end_after("a "));
    CHECK(language.must_end_after("a  "));
}

TEST_CASE("alternatives that begin alike are followed together") {
    Grammar grammar;
    const RuleId one = grammar.add_rule("one", grammar.text("abc1"));
    const RuleId two = grammar.add_rule("two", grammar.text("abc2"));
    const RuleId three = grammar.add_rule("three", grammar.text("abc"));
    const Part any = grammar.choice({grammar.call(one), grammar.call(two), grammar.call(three)});
    grammar.start_with(grammar.add_rule("answer", grammar.repeat(any, 1, -1)));
    Language language(grammar);
    CHECK(language.has("abc1abc2abcabc"));
    CHECK_FALSE(language.has("abc3"));
    CHECK_FALSE(language.has("ab"));
}

TEST_CASE("an ambiguous grammar does not take more with every choice") {
    Grammar grammar;
    const RuleId list = grammar.declare("list");
    const Part item = grammar.text("x");
    const RuleId a = grammar.add_rule("a", grammar.choice({item, grammar.call(list)}));
    const RuleId b = grammar.add_rule("b", grammar.choice({item, grammar.call(list)}));
    const Part either = grammar.choice({grammar.call(a), grammar.call(b)});
    grammar.define(list,
                   grammar.sequence({grammar.text("["), grammar.repeat(either, 0, -1), grammar.text("]")}));
    grammar.start_with(list);
    Language language(grammar);
    // Each item, and each list in a list, can be read in two ways: 2^400 in all.
    std::string text;
    for (int depth = 0; depth < 200; ++depth) text += "[x";
    CHECK(language.has(text + std::string(200, ']')));
    CHECK_FALSE(language.has(text + std::string(199, ']')));
}

TEST_CASE("ways that cannot come to an end are not taken") {
    Grammar grammar;
    const RuleId endless = grammar.declare("endless");
    grammar.define(endless, grammar.sequence({grammar.text("a"), grammar.call(endless)}));
    grammar.start_with(grammar.add_rule(
        "answer",
        grammar.choice({grammar.sequence({grammar.text("a"), grammar.call(endless)}),
                        grammar.sequence({grammar.text("b"), grammar.nothing()}), grammar.text("c")})));
    Language language(grammar);
    CHECK(language.has("c"));
    CHECK_FALSE(language.has_start("a"));
    CHECK_FALSE(language.has_start("b"));
}

TEST_CASE("a grammar that no text fits is refused") {
    Grammar grammar;
    CHECK_THROWS_WITH(Language(only(grammar, grammar.nothing())), "no text fits the constraint");
    const RuleId endless = grammar.declare("endless");
    grammar.define(endless, grammar.sequence({grammar.text("a"), grammar.call(endless)}));
    CHECK_THROWS_WITH(Language(only(grammar, grammar.call(endless))), "no text fits the constraint");
}

TEST_CASE("a rule may begin with itself, also behind what may be empty") {
    Grammar grammar;
    const RuleId left = grammar.declare("left");
    const RuleId space = grammar.add_rule("space", grammar.optional(grammar.text(" ")));
    grammar.define(
        left, grammar.choice({grammar.sequence({grammar.call(space), grammar.call(left), grammar.text("+")}),
                              grammar.text("x")}));
    Language language(only(grammar, grammar.call(left)));
    for (const char* good : {"x", "x+", "x++", " x+", " x++", "  x++"}) CHECK(language.has(good));
    for (const char* bad : {"", " ", " x", "+", "  x+", "x+x"}) CHECK_FALSE(language.has(bad));
}

TEST_CASE("an automaton that would be too large is refused, by name") {
    const auto check_refused = [](const Grammar& grammar, std::string_view rule) {
        expect_error(Status::unsupported, rule, [&] { const Language language(grammar); });
    };
    SECTION("for its states") {
        Grammar grammar;
        const Part bit = grammar.byte_in(byte_range('0', '1'));
        // A 1 before the last 40 bits: a deterministic automaton needs more than 2^40 states.
        grammar.start_with(grammar.add_rule(
            "bits",
            grammar.sequence({grammar.repeat(bit, 0, -1), grammar.text("1"), grammar.repeat(bit, 40, 40)})));
        check_refused(grammar, "'bits'");
        CHECK_THROWS_AS(grammar.repeat(bit, 0, k_max_repeats + 1), Error);
    }
    SECTION("for what its states reach, and soon") {
        Grammar grammar;
        // Each part may be empty, so every place can be reached from all places before it.
        const Part letters = grammar.choice({grammar.text("a"), grammar.text("ab"), grammar.empty()});
        grammar.start_with(grammar.add_rule("letters", grammar.repeat(letters, 30000, 30000)));
        check_refused(grammar, "'letters'");
    }
}

TEST_CASE("text without a closer") {
    Grammar grammar;
    const Part inside = part_of(grammar, texts_without("aab"), utf8_spelling(grammar));
    const Part whole = grammar.sequence({inside, grammar.text("aab!")});
    Language language(only(std::move(grammar), whole));
    for (const char* good : {"aab!", "aaab!", "x aa b ab aab!",
                             "\xC3\xA9"
                             "aab!",
                             "aaaaaaaab!"})
        CHECK(language.has(good));
    for (const char* bad : {"aabaab!", "aab", "xaab?",
                            "\xC3"
                            "aab!"})
        CHECK_FALSE(language.has(bad));
}

TEST_CASE("states that no token can tell apart are of one kind") {
    Grammar grammar;
    const Part part = grammar.repeat(grammar.text("a"), 0, 1000);
    const Grammar counted = only(std::move(grammar), part);
    const auto kinds = [&](size_t longest) {
        const Automaton automaton = make_automaton(counted, longest);
        std::vector<int32_t> seen = automaton.kinds;
        std::sort(seen.begin(), seen.end());
        return std::unique(seen.begin(), seen.end()) - seen.begin();
    };
    CHECK(kinds(8) == 9);  // the kinds: 0 to 7 more, and at least 8 more
    CHECK(kinds(100) == 101);
    CHECK(kinds(5000) == 1001);
}
