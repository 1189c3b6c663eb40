// SPDX-License-Identifier: Apache-2.0
#include "constraint/gbnf.h"

#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "support.h"
#include "support/catch.h"

using namespace minim;
using namespace minim::constraint;
using namespace minim::constraint::testing;

namespace {

Language of_gbnf(std::string_view text) {
    return Language(grammar_of_gbnf(text, nullptr));
}

void refused(std::string_view text, Status status, const std::string& message) {
    INFO(text.substr(0, 200));
    try {
        of_gbnf(text);
    } catch (const Error& error) {
        CHECK(error.status() == status);
        INFO(error.what());
        CHECK(std::string_view(error.what()).find(message) != std::string_view::npos);
        return;
    }
    FAIL_CHECK("no error");
}

// Rules of random alternatives over `a`, `b` and each other, with all of their texts up to a length.
struct RandomGrammar {
    static constexpr size_t k_longest = 5;
    using Texts = std::set<std::string>;
    using Alternative = std::vector<int>;  // -1: a, -2: b, otherwise a rule

    explicit RandomGrammar(std::mt19937& random) : rules(1 + random() % 4) {
        for (std::vector<Alternative>& rule : rules) {
            rule.resize(1 + random() % 3);
            for (Alternative& alternative : rule)
                for (size_t n = random() % 4; n > 0; --n)
                    alternative.push_back(static_cast<int>(random() % (rules.size() + 2)) - 2);
        }
    }

    static std::string name(int rule) { return rule == 0 ? "root" : "r" + std::to_string(rule); }

    std::string text() const {
        std::string text;
        for (size_t r = 0; r < rules.size(); ++r) {
            text += name(static_cast<int>(r)) + " ::= ";
            for (size_t i = 0; i < rules[r].size(); ++i) {
                text += i > 0 ? "| \"\" " : "\"\" ";
                for (const int part : rules[r][i])
                    text += part == -1 ? "\"a\" " : part == -2 ? "[b] " : name(part) + " ";
            }
            text += "\n";
        }
        return text;
    }

    Texts texts() const {
        std::vector<Texts> of(rules.size());
        for (bool has_changed = true; has_changed;) {
            has_changed = false;
            for (size_t r = 0; r < rules.size(); ++r) {
                for (const Alternative& alternative : rules[r]) {
                    Texts found = {""};
                    for (const int part : alternative)
                        found = joined(found, part == -1   ? Texts{"a"}
                                              : part == -2 ? Texts{"b"}
                                                           : of[static_cast<size_t>(part)]);
                    const size_t before = of[r].size();
                    of[r].merge(found);
                    has_changed |= of[r].size() != before;
                }
            }
        }
        return of[0];
    }

    static Texts joined(const Texts& left, const Texts& right) {
        Texts all;
        for (const std::string& a : left)
            for (const std::string& b : right)
                if (a.size() + b.size() <= k_longest) all.insert(a + b);
        return all;
    }

    std::vector<std::vector<Alternative>> rules;
};

}  // namespace

TEST_CASE("grammars fit what they say") {
    const std::vector<Example> examples = {
        {"root ::= \"abc\"", {"abc"}, {"", "ab", "abcd"}},
        {"root::=\"a\"|\"b\"", {"a", "b"}, {"", "ab"}},
        {"root ::= \"\"", {""}, {"a"}},
        {"root ::= | \"a\"", {"", "a"}, {"aa"}},
        {"root ::= () \"a\" (\"b\" | )", {"a", "ab"}, {"", "b"}},
        {"root ::= \"a\"* \"b\"+ \"c\"?", {"b", "aabbc"}, {"", "ac", "bcc"}},
        {"root ::= \"a\"{2} [b]{1,} [c]{0,2} \"d\"{,1}", {"aab", "aabbccd"}, {"ab", "aa", "aabccc", "aabdd"}},
        {"root ::= (\"ab\"){ 2 , 3 }", {"abab", "ababab"}, {"ab", "abababab"}},
        {"root ::= \"a\"?* [b]+?", {"", "aab", "bb"}, {"ba"}},
        {"root ::= [a-cx-]", {"a", "c", "x", "-"}, {"d", "", "ab"}},
        {"root ::= [^a-c]", {"d", "\n", "\xC3\xA9"}, {"a", "", "\xC3"}},
        {"root ::= [\\]\\\\^-]+", {"]\\^-"}, {"a"}},
        {"root ::= .", {"a", "\n", "\xF0\x9F\x98\x80"}, {"", "ab", "\xF0"}},
        {"root ::= \"\\n\\r\\t\\\\\\\"\\[\\]\"", {"\n\r\t\\\"[]"}, {""}},
        {"root ::= \"\\x41\\xe9\\u20AC\\U0001F600\\uD83D\\uDE00\"",
         {"A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xF0\x9F\x98\x80"},
         {"A\xE9"}},
        {"root ::= [\\u0000-\\uFFFF\\x00]", {"a", "\xE2\x82\xAC"}, {"\xF0\x9F\x98\x80"}},
        {"root ::= [\xE3\x81\x81-\xE3\x82\x9F]+", {"\xE3\x81\x82\xE3\x82\x8B"}, {"a", "\xE3\x82\xA2"}},
        {"root ::= \"a\nb\"", {"a\nb"}, {"ab"}},
        {"\xEF\xBB\xBF# a comment \"\nroot ::= a-1 # another | \"x\"\n  b_2\n\na-1 ::= \"a\" |\n "
         "\"A\"\r\nb_2 ::= (\n \"b\"\n)",
         {"ab", "Ab"},
         {"a", "b", "x"}},
        {"root ::= \"x\"\n  | \"y\"\n  | \"z\" \"!\"\n", {"x", "y", "z!"}, {"z"}},
        {"root ::= a.b c\na.b ::= \"1\"\nc ::= \"2\"", {"12"}, {"1", "1x2"}},
        {"root ::= a.b+ .c\na ::= \"1\"\nb ::= \"2\"\nc ::= \"3\"", {"1x2y3", "1x222y3"}, {"12", "1x23"}},
        {"unused ::= root unused\nroot ::= \"a\"", {"a"}, {"aa"}},
        {"root ::= \"a\" | endless\nendless ::= \"b\" endless", {"a"}, {"b"}},
    };
    check_examples(examples, of_gbnf);
}

TEST_CASE("rules may refer to themselves") {
    const std::vector<Example> examples = {
        {"root ::= \"a\" root | \"b\"", {"b", "ab", "aaaab"}, {"", "a", "ba"}},
        {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "(()", "())"}},
        {"root ::= (\"a\" | \"[\" root (\",\" root)* \"]\")",
         {"a", "[a]", "[a,[a,a]]"},
         {"[]", "[a", "[a,]"}},
        {"root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"\"", {"abba", "aabbaa"}, {"ab", "aba"}},
        {"root ::= root \",\" [a-c] | [a-c]", {"a", "a,b", "a,b,c"}, {"", "a,", ",a", "ab"}},
        {"root ::= root root | \"a\" | \"\"", {"", "a", "aaaa"}, {"b"}},
        {"root ::= e\ne ::= e \"+\" t | t\nt ::= t \"*\" f | f\nf ::= \"(\" e \")\" | [0-9]",
         {"1", "1+2*3", "(1+2)*(3)", "((1))"},
         {"", "1+", "(1", "1)", "12"}},
        {"root ::= a \".\"\na ::= b \"x\" | \"1\"\nb ::= c \"y\" | a\nc ::= a \"z\" | b | \"2\"",
         {"1.", "2yx.", "1zyx.", "1x.", "1xx.", "2yyx.", "2yxzyx."},
         {"1", "2.", "2y.", "1z.", "1zy.", "x."}},
        {"root ::= n? root \"x\" | n root | \"1\"\nn ::= \"-\"",
         {"1", "-1", "1x", "-1x", "--1xx", "-1xx"},
         {"-", "x", "1-"}},
        {"root ::= even | \"\"\neven ::= \"a\" odd\nodd ::= \"a\" | \"a\" even",
         {"", "aa", "aaaa"},
         {"a", "aaa"}},
    };
    check_examples(examples, of_gbnf);
}

TEST_CASE("repetitions are counted exactly") {
    const auto times = [](std::string_view text, size_t n) {
        std::string all;
        for (size_t i = 0; i < n; ++i) all += text;
        return all;
    };
    const std::vector<Example> examples = {
        {"root ::= \"ab\"{17,19} \"!\"",
         {times("ab", 17) + "!", times("ab", 19) + "!"},
         {times("ab", 16) + "!", times("ab", 20) + "!", times("ab", 17) + "a!"}},
        {"root ::= [a-c]{1000}", {times("abca", 250)}, {times("a", 999), times("a", 1001)}},
        {"root ::= (\"a\" | \"aa\"){20,22}",
         {times("a", 20), times("a", 44), times("a", 31)},
         {times("a", 19), times("a", 45)}},
        {"root ::= (\"a\"?){20,30} \"b\"", {"b", times("a", 30) + "b"}, {times("a", 31) + "b"}},
        {"root ::= (\"a\"{17,18} \",\"){17,}",
         {times(times("a", 17) + ",", 17), times(times("a", 18) + ",", 40)},
         {times(times("a", 17) + ",", 16), times(times("a", 19) + ",", 17)}},
        {"root ::= \"(\" root{0,20} \")\"",
         {"()", "(()(()))", "(" + times("()", 20) + ")"},
         {"(" + times("()", 21) + ")", "(()"}},
        {"root ::= \"x\" endless{20} | \"y\"\nendless ::= \"a\" endless", {"y"}, {"x"}},
        {"root ::= a{20} | \"y\"\na ::= (b \"c\"){17}\nb ::= \"a\" b", {"y"}, {"a"}},
        {"root ::= .{0,1000000}", {"", times("a", 5000)}, {"\xFF"}},
    };
    check_examples(examples, of_gbnf);
    Language dead = of_gbnf("root ::= \"x\" endless{20} | \"y\"\nendless ::= \"a\" endless");
    CHECK_FALSE(dead.has_start("x"));
    refused("root ::= \"a\"{1000000001}", Status::unsupported, "line 1: a count above 1000000000");
    refused("root ::= (root \"a\"){20} | \"b\"", Status::unsupported, "'root (line 1)' begins with itself");
}

TEST_CASE("random grammars have exactly the texts of their rules") {
    std::mt19937 random(7);
    int n_with_texts = 0;
    for (int round = 0; round < 1500; ++round) {
        const RandomGrammar grammar(random);
        const RandomGrammar::Texts texts = grammar.texts();
        INFO(grammar.text());
        std::optional<Language> language;
        try {
            language.emplace(grammar_of_gbnf(grammar.text(), nullptr));
        } catch (const Error&) {
            CHECK(texts.empty());
            continue;
        }
        n_with_texts += texts.empty() ? 0 : 1;
        for (size_t length = 0; length <= RandomGrammar::k_longest; ++length) {
            for (size_t bits = 0; bits < size_t{1} << length; ++bits) {
                std::string text;
                for (size_t i = 0; i < length; ++i) text += (bits >> i & 1) != 0 ? 'b' : 'a';
                if (language->has(text) != texts.contains(text)) FAIL_CHECK("text: " << text);
                if (texts.contains(text) && language->must_end_after(text) && texts.size() > 1)
                    for (const std::string& other : texts)
                        if (other != text && other.starts_with(text)) FAIL_CHECK("must not end: " << text);
            }
        }
    }
    CHECK(n_with_texts > 700);
}

TEST_CASE("ambiguity does not make positions grow with the text") {
    for (const char* form :
         {"root ::= root root | \"a\"", "root ::= root \"a\" root | \"a\"",
          "root ::= \"a\" | \"a\" root | \"a\" root root root", "root ::= [a]* root [a]* | \"a\"",
          "root ::= (x y)*\nx ::= [a]*\ny ::= [a]* x", "root ::= (\"a\"? root)* \"a\""}) {
        INFO(form);
        const Automaton automaton = make_automaton(grammar_of_gbnf(form, nullptr), 64);
        Positions positions(automaton);
        const int32_t place =
            positions.read(positions.start_of(automaton.start_rule), std::string(3001, 'a'));
        REQUIRE(place != Positions::k_dead);
        CHECK(positions.may_end(place));
        CHECK(positions.places(place).size() < 20);
    }
}

TEST_CASE("a text whose places are too many is refused by an error that says so") {
    // The middle may be anywhere, and each of many endings may follow it.
    std::string text = "root ::= [ab] | [ab] root (\"a\" | \"b\")";
    for (int i = 0; i < 60; ++i) text += " | [ab] root \"a\" [ab]{" + std::to_string(i % 15 + 1) + "}";
    const Automaton automaton = make_automaton(grammar_of_gbnf(text, nullptr), 64);
    Positions positions(automaton);
    const int32_t start = positions.start_of(automaton.start_rule);
    CHECK(positions.read(start, std::string(50, 'a')) != Positions::k_dead);
    CHECK_THROWS_WITH(positions.read(start, std::string(20'000, 'a')),
                      "the constraint is too ambiguous: following a text takes more than 8388608 places");
}

TEST_CASE("hostile grammars end in an automaton or an error, soon") {
    std::string text = "root ::= \"a\"";
    for (int i = 0; i < 20'000; ++i) text += " | \"k" + std::to_string(i) + "\"";
    CHECK(of_gbnf(text).has("k19999"));
    text = "root ::= r0\n";
    for (int i = 0; i < 10'000; ++i)
        text += "r" + std::to_string(i) + " ::= \"x\" r" + std::to_string(i + 1) + "?\n";
    CHECK(of_gbnf(text + "r10000 ::= \"a\"").has("xxx"));
    refused("root ::= " + std::string(10'000, '(') + "\"a\"" + std::string(10'000, ')'), Status::invalid,
            "rule 'root': more than 200 groups");
    CHECK(of_gbnf("root ::= \"a\"{1,1000000}{1,1000000}{1,1000000}").has("aaa"));
    refused("root ::= ((((\"a\"{1,16} \"b\"){1,16} \"c\"){1,16}){1,16}){1,16}", Status::unsupported,
            "'root (line 1)'");
    // Overlapping ranges, no two with the same ends: 160,000 states for nearly every byte, after each first byte.
    text = "root ::= [\\U00000300-\\U00020300]";
    for (int i = 1; i < 20'000; ++i) text += format_text(" | [\\U{:08X}-\\U{:08X}]", 0x300 + i, 0x20300 + i);
    refused(text, Status::unsupported, "'root (line 1)' has more than");
    text = "root ::= r0\n";
    for (int i = 0; i < 2000; ++i)
        text += "r" + std::to_string(i) + " ::= r" + std::to_string((i + 1) % 2000) + " \"a\" | \"b\"\n";
    refused(text, Status::unsupported, "begins with itself, and needs an automaton");
}

TEST_CASE("what is no grammar is refused with its line, rule and what to write") {
    const auto invalid = [](std::string_view text, const std::string& message) {
        refused(text, Status::invalid, message);
    };
    invalid("", "there is no rule 'root'");
    invalid("# nothing\n", "there is no rule 'root'");
    invalid("Root ::= \"a\"", "there is no rule 'root'");
    invalid("\"a\" | \"b\"", "line 1: the grammar has no rule; write 'root ::= ...'");
    invalid("root ::= a\n", "line 1: rule 'root': rule 'a' is not defined");
    invalid("root ::= a\na ::= \"x\"\n\nroot ::= \"y\"", "line 4: rule 'root' is already defined on line 1");
    invalid("root ::= a\na ::=\nb ::= \"x\"", "rule 'a': it has no text; write \"\"");
    invalid("root ::= \"a", "line 1: a literal is not closed");
    invalid("root ::= \"a\"\nx ::= [a-z", "line 2: a class of characters is not closed");
    invalid("root ::= \"a\"\nx ::= [a-\\", "line 2: a class of characters is not closed");
    invalid("root ::= (\"a\"\nx ::= \"b\"", "line 1: rule 'root': a '(' is not closed");
    invalid("root ::= \"a\")", "rule 'root': a ')' that closes nothing");
    invalid("root ::= * \"a\"", "rule 'root': a repetition of nothing");
    invalid("root ::= \"a\" ::= \"b\"", "'::=' without the name");
    invalid("x \"a\"\nroot ::= x", "line 1: 'name ::=' is expected, and not 'x'");
    invalid("root ::= []", "a class of characters without any");
    invalid("root ::= [^]", "a class of characters without any");
    invalid("root ::= [z-a]", "the range U+007A-U+0061 goes down");
    invalid("root ::= \"a\"{3,2}", "the count {3,2} goes down");
    invalid("root ::= \"a\"{x}", "a count is written {m}, {m,} or {m,n}");
    invalid("root ::= \"a\"{}", "a count is written {m}, {m,} or {m,n}");
    invalid("root ::= \"\\q\"", "'\\q' is not an escape");
    invalid("root ::= [\\d]", "write [0-9]");
    invalid("root ::= \"\\x4\"", "an escape of 2 hexadecimal digits has only 1");
    invalid("root ::= \"\\uD83D\"", "\\uD83D is one half of a surrogate pair");
    invalid("root ::= \"\\U00110000\"", "\\U00110000 is not a character");
    invalid("root ::= \"a\"\n\nb ::= \"\xFF\"", "line 3: byte 21 of the grammar is not valid UTF-8");
    invalid("root ::= <think>", "<think> is not a token of the model");
    invalid("root ::= <think", "a token is not closed by '>'");
    invalid("root ::= !<think>", "'!' (any token but one) is not supported");
    // Other notations:
    invalid("root: \"a\"", "':' does not define a rule; write 'name ::= ...'");
    invalid("root = \"a\" ;", "'=' does not define a rule");
    invalid("root -> \"a\"", "'->' does not define a rule");
    invalid("root ::= 'a'", "between double quotes");
    invalid("root ::= \"a\";", "';' has no meaning");
    invalid("root ::= \"a\", \"b\"", "',' has no meaning");
    invalid("root ::= /[a-z]+/", "'/' begins");
    invalid("// a comment\nroot ::= \"a\"", "'/' begins");
    invalid("root ::= \"a\"\n%ignore \" \"", "line 2: directives");
    invalid("root ::= \"a\" (=\"b\")", "'(=' begins a look-ahead");
    invalid("root ::= \"a\" root", "no text fits");
    invalid("root ::= root", "no text fits");
    invalid("root ::= root root", "no text fits");
    invalid("root ::= root \"a\" | a\na ::= root", "no text fits");
}
