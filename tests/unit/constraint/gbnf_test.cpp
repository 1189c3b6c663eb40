// SPDX-License-Identifier: Apache-2.0
#include "constraint/gbnf.h"

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
        {"root ::= even | \"\"\neven ::= \"a\" odd\nodd ::= \"a\" | \"a\" even",
         {"", "aa", "aaaa"},
         {"a", "aaa"}},
    };
    check_examples(examples, of_gbnf);
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
}
