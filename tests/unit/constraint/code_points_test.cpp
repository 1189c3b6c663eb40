// SPDX-License-Identifier: Apache-2.0
#include "constraint/code_points.h"

#include <random>
#include <string>

#include "base/utf8.h"
#include "support.h"
#include "support/catch.h"

using namespace minim;
using namespace minim::constraint;
using namespace minim::constraint::testing;

namespace {

std::string encoded(char32_t c) {
    std::string text;
    append_utf8(c, text);
    return text;
}

}  // namespace

TEST_CASE("sets of characters merge what touches") {
    CodePoints set;
    set.add(10, 20).add(30, 40).add(21, 29);
    REQUIRE(set.ranges().size() == 1);
    CHECK(set.ranges()[0].first == 10);
    CHECK(set.ranges()[0].last == 40);
    set.add(50).add(5, 60);
    REQUIRE(set.ranges().size() == 1);
    CHECK(set.contains(60));
    CHECK_FALSE(set.contains(61));
}

TEST_CASE("the complement has no surrogates and is its own inverse") {
    const CodePoints set = CodePoints().add('a', 'z').add(0x4E00, 0x9FFF);
    const CodePoints rest = set.complement();
    CHECK_FALSE(rest.contains('m'));
    CHECK(rest.contains('A'));
    CHECK_FALSE(rest.contains(0xD800));
    CHECK(rest.contains(0x10FFFF));
    const CodePoints back = rest.complement();
    REQUIRE(back.ranges().size() == 2);
    CHECK(back.ranges()[1].last == 0x9FFF);
    CHECK(set.without(CodePoints().add('b', 'y')).contains('a'));
    CHECK_FALSE(set.without(CodePoints().add('b', 'y')).contains('b'));
}

TEST_CASE("every character of a set fits its bytes, and no other does") {
    std::mt19937 random(7);
    const auto any = [&] { return std::uniform_int_distribution<char32_t>(0, 0x10FFFF)(random); };
    for (int round = 0; round < 20; ++round) {
        CodePoints set;
        for (int i = 0; i < 4; ++i) {
            const char32_t first = round % 2 == 0 ? any() : any() % 0x1000;
            set.add(first, std::min<char32_t>(first + any() % (round % 3 == 0 ? 0x8000 : 70), 0x10FFFF));
        }
        Grammar grammar;
        const Part part = utf8(grammar, set);
        Language language(only(std::move(grammar), part));
        const auto check = [&](char32_t c) {
            if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return;
            if (language.has(encoded(c)) != set.contains(c)) FAIL("U+" << std::hex << uint32_t{c});
        };
        for (int i = 0; i < 2000; ++i) check(any());
        for (char32_t c = 0; c < 0x3000; ++c) check(c);
        for (const CodePoints::Range& range : set.ranges())
            for (const char32_t c : std::initializer_list<char32_t>{
                     range.first - 1, range.first, range.first + 1, range.last, range.last + 1})
                check(c);
    }
}

TEST_CASE("bytes that are no UTF-8 never fit") {
    Grammar grammar;
    const Part part = grammar.repeat(utf8(grammar, CodePoints::all()), 0, -1);
    Language language(only(std::move(grammar), part));
    CHECK(language.has("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"));
    for (const char* bad :
         {"\x80", "\xC0\x80", "\xC3(", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF"})
        CHECK_FALSE(language.has(bad));
    CHECK_FALSE(language.has("\xE2\x82"));
    CHECK(language.has_start("\xE2\x82"));
}
