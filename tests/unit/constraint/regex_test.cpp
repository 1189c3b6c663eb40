// SPDX-License-Identifier: Apache-2.0
#include "constraint/regex.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "support.h"
#include "support/catch.h"

using namespace minim;
using namespace minim::constraint;
using namespace minim::constraint::testing;

namespace {

std::string message_of(std::string_view pattern, Status status) {
    try {
        of_regex(pattern);
    } catch (const Error& error) {
        CHECK(error.status() == status);
        return error.what();
    }
    FAIL("no error for " << pattern);
    return "";
}

}  // namespace

TEST_CASE("expressions fit what they say") {
    const std::vector<Example> examples = {
        {"", {""}, {"a"}},
        {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
        {"a|b|", {"a", "b", ""}, {"ab"}},
        {"a*b+c?", {"b", "aaabbbc", "bc"}, {"a", "cb", "abcc"}},
        {"(ab){2,3}", {"abab", "ababab"}, {"ab", "abababab"}},
        {"a{3}", {"aaa"}, {"aa", "aaaa"}},
        {"a{2,}", {"aa", "aaaaa"}, {"a"}},
        {"a{,2}|{}", {"a{,2}", "{}"}, {"a", "aa"}},
        {"a+?b*?", {"a", "aab"}, {"b"}},
        {"[a-cx]", {"a", "b", "c", "x"}, {"d", "ab", "-"}},
        {"[^a-c]", {"d", "\n", "\xC3\xA9"}, {"a", "b", ""}},
        {"[-a]|[a-]|[\\]-]", {"-", "a", "]"}, {"b"}},
        {"[]x]|a", {"a"}, {"]x]", "]"}},
        {"[^]", {"a", "]", "\n"}, {""}},
        {"[\\d_][\\w.-]*", {"_", "1.5-x"}, {"x", ".1"}},
        {".", {"a", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}, {"\n", "\r", "\xE2\x80\xA8", "ab", "\xE2"}},
        {"\\d\\D\\w\\W\\s\\S", {"1a_! x"}, {"aa_! x", "1a_!  "}},
        {"\\t\\n\\r\\f\\v\\0", {std::string("\t\n\r\f\v\0", 6)}, {""}},
        {"\\x41\\u00e9\\u{1F600}\\uD83D\\uDE00", {"A\xC3\xA9\xF0\x9F\x98\x80\xF0\x9F\x98\x80"}, {"A"}},
        {"\\.\\*\\[\\\\\\/", {".*[\\/"}, {"a"}},
        {"\xC3\xA9+", {"\xC3\xA9\xC3\xA9"}, {"e"}},
        {"[\xC3\xA0-\xC3\xBC]", {"\xC3\xA9"}, {"\xC3\xBD", "e"}},
        {"(?:a|b)(?<name>c)", {"ac", "bc"}, {"a", "abc"}},
        {"^abc$", {"abc"}, {"^abc$"}},
        {"^(a|b)$|^c$", {"a", "b", "c"}, {"", "ac"}},
        {"(^a$)", {"a"}, {"aa"}},
        {"(a|(bc)*)*", {"", "abcbca"}, {"b", "acb"}},
        {"((a?){3}){2}", {"", "aaaaaa"}, {"aaaaaaa"}},
        {"a]b}", {"a]b}"}, {"ab"}},
    };
    check_examples(examples, [](const char* pattern) { return of_regex(pattern); });
}

TEST_CASE("a pattern that may be anywhere is tied by its anchors") {
    const std::vector<Example> examples = {
        {"b", {"b", "abc", "b\n"}, {"", "ac"}},
        {"^b", {"b", "bc"}, {"ab"}},
        {"b$", {"b", "ab"}, {"bc"}},
        {"^b$", {"b"}, {"ab", "bc"}},
        {"^a|b$", {"ax", "xb"}, {"xax", "xbx"}},
        {"^(a|b)", {"ax", "bx"}, {"xa"}},
        {"(^a|b)c", {"acx", "xbcx"}, {"xacx"}},
        {"a(b|c$)", {"xabx", "xac"}, {"xacx"}},
        {"^", {"", "x"}, {}},
        {"", {"", "x"}, {}},
    };
    check_examples(examples, [](const char* pattern) { return of_regex(pattern, Match::anywhere); });
}

TEST_CASE("what is no regular expression is refused with its place") {
    for (const char* bad :
         {"(", "a)", "[a", "[b-a]", "[a-\\d]", "*a", "a|+", "a**", "a{2}{3}", "a+??", "a{3,2}", "\\", "\\u12",
          "\\xZZ", "\\u{}", "\\u{110000}", "\\uD800\\u0041", "(?<name", "\xFF"})
        CHECK(message_of(bad, Status::invalid).find("at byte") != std::string::npos);
}

TEST_CASE("look-around, edges of words and of the text") {
    const std::vector<Example> examples = {
        {"(?=.*[0-9])(?=.*[A-Z]).{3,5}", {"aB1", "1Bx", "A1xyz"}, {"B1", "ab1", "AB", "A1wxyz"}},
        {"(?!admin|root$)[a-z]+", {"user", "rooted", "adm", "roots"}, {"admin", "admins", "root"}},
        {"([a-z](?!q))+", {"abc", "q", "qa"}, {"aq", "abqc"}},
        {"a(?=b|$)b?c?", {"a", "ab", "abc"}, {"ac", "b"}},
        {".*(?<!\\.txt)", {"a.tx", "txt", ""}, {"a.txt", ".txt"}},
        {"[a-z]+(?<=ing|ed)", {"ring", "red", "ed"}, {"rin", "edx"}},
        {"(?<=^a|b)c|abc|ac", {"abc", "ac"}, {"c", "bc"}},
        {"\\bcat\\b.*|x\\Bcat", {"cat", "cat!", "cat s", "xcat"}, {"cats", "x cat"}},
        {"a\\b\\B|b", {"b"}, {"a"}},
        {"^^a$$|(^b)+|c(?:$)*", {"a", "b", "c"}, {"aa", "bb", "^a"}},
        {"x^y|z", {"z"}, {"xy", "x^y"}},
        {"(?m)a$\\n^b", {"a\nb"}, {"ab", "a\n\nb"}},
        {"(?!(?=ab)a|.*c$).*", {"ac.", "b", "a"}, {"ab", "bc"}},
        {"(?:(?=a)a|(?!a)b)*", {"", "abba"}, {"c"}},
        {"\\A[0-9]+\\z|\\Ax\\Z", {"12", "x"}, {"A1z", "AxZ"}},
    };
    check_examples(examples, [](const char* pattern) { return of_regex(pattern); });
    const std::vector<Example> anywhere = {
        {"(?<!\\w)x(?!\\w)", {"x", "a x b", ".x."}, {"ax", "xb", "_x"}},
        {"\\bid\\b", {"id", "the id!", "-id-"}, {"idle", "void", "_id"}},
        {"^(?!.*(.)--).*z$|^$", {"az", "", "a-z"}, {"a--z", "x"}},
        {"(?<=a{2})b", {"aab", "xaaab."}, {"ab", "b"}},
    };
    check_examples(anywhere, [](const char* pattern) { return of_regex(pattern, Match::anywhere); });
}

TEST_CASE("what schema writers of other languages write") {
    const std::vector<Example> examples = {
        {"(?i)stra\u00DFe|K\u00C4SE", {"STRA\u00DFE", "k\u00E4se", "K\u00E4SE"}, {"STRASSE", "K\u00E4S"}},
        {"a(?i:b)c(?i)d", {"abcd", "aBcD"}, {"Abcd", "abCd"}},
        {"(?i)[^a-y]|(?-i:q)", {"z", "Z", "1", "q"}, {"b", "B", "Q"}},
        {"(?s).", {"\n", "a"}, {""}},
        {"(?P<first>a)(?<second>b)(?:c)(?#note)d", {"abcd"}, {"abc"}},
        {"\\p{Lu}\\p{Ll}+", {"\u00C4bc", "Ab"}, {"ab", "AB", "A1"}},
        {"\\p{Letter}\\pN\\P{L}[\\p{P}\\p{Sc}]", {"\u00E97-!", "a\u00B2 \u20AC"}, {"aa-!", "a1b!"}},
        {"\\p{gc=Nd}{2}\\p{ASCII}\\p{Any}", {"12a\u00E9", "\u0663\u0664x\n"}, {"1xa\u00E9", "12\u00E9a"}},
        {"\\@\\_\\-\\/\\:\\#\\ \\\"\\'\\%\\&\\,\\;\\<\\=\\>\\`\\~\\!", {"@_-/:# \"'%&,;<=>`~!"}, {"\\@"}},
        {"a\\cIb[\\cJ]", {"a\tb\n"}, {"acIb"}},
        {"[\\w\\-.]+\\x2e", {"a-.."}, {"a"}},
    };
    check_examples(examples, [](const char* pattern) { return of_regex(pattern); });
}

TEST_CASE("what no automaton can say is refused") {
    for (const char* bad : {"(a)\\1", "(?<n>a)\\k<n>", "(?P<n>a)(?P=n)", "(?>a)", "(?x)a b", "(?(1)a|b)",
                            "\\p{Klingon}", "\\q", "(?<=a(?=b))b"})
        CHECK(message_of(bad, Status::unsupported).find("regular expression") != std::string::npos);
    CHECK(message_of(std::string(200, '(') + std::string(200, ')'), Status::unsupported).find("groups") !=
          std::string::npos);
    CHECK(message_of("a{100001}", Status::unsupported).find("100000") != std::string::npos);
    CHECK(message_of("(a{1000}){1001}", Status::unsupported).find("states") != std::string::npos);
    CHECK(message_of("(?=.*a.{30}b).*b.{30}a", Status::unsupported).find("states") != std::string::npos);
    CHECK(message_of("a^b", Status::invalid).find("no text") != std::string::npos);
}
