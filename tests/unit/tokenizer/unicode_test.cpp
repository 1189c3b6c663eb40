// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/unicode.h"

#include <map>
#include <set>

#include "support/catch.h"

using namespace minim::tokenizer;

TEST_CASE("code points have their class") {
    CHECK(unicode_class(U'A') == UnicodeClass::upper_letter);
    CHECK(unicode_class(U'z') == UnicodeClass::lower_letter);
    CHECK(unicode_class(0x01C5) == UnicodeClass::upper_letter);     // title case
    CHECK(unicode_class(0x00AA) == UnicodeClass::caseless_letter);  // feminine ordinal
    CHECK(unicode_class(0x02B0) == UnicodeClass::caseless_letter);  // modifier h
    CHECK(unicode_class(0x4E2D) == UnicodeClass::caseless_letter);
    CHECK(unicode_class(0x0301) == UnicodeClass::mark);
    CHECK(unicode_class(0x0903) == UnicodeClass::mark);
    CHECK(unicode_class(0x20DD) == UnicodeClass::mark);
    CHECK(unicode_class(U'7') == UnicodeClass::number);
    CHECK(unicode_class(0x2167) == UnicodeClass::number);  // Roman eight
    CHECK(unicode_class(0x00BD) == UnicodeClass::number);  // one half
    CHECK(unicode_class(U'_') == UnicodeClass::other);
    CHECK(unicode_class(0x1F436) == UnicodeClass::other);
    CHECK(unicode_class(0x10FFFF) == UnicodeClass::other);
    CHECK(unicode_class(0xD800) == UnicodeClass::other);
}

TEST_CASE("code points new in Unicode 15 and 16 have their class") {
    CHECK(unicode_class(0x1C89) == UnicodeClass::upper_letter);
    CHECK(unicode_class(0x1C8A) == UnicodeClass::lower_letter);
    CHECK(unicode_class(0x10D50) == UnicodeClass::upper_letter);
    CHECK(unicode_class(0x323AF) == UnicodeClass::caseless_letter);
    CHECK(unicode_class(0x2EBF0) == UnicodeClass::caseless_letter);
    CHECK(unicode_class(0x1E4F0) == UnicodeClass::number);
    CHECK(unicode_class(0x323B0) == UnicodeClass::other);
}

TEST_CASE("white space is the property White_Space") {
    std::set<uint32_t> expected = {0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
    for (uint32_t c = 0x09; c <= 0x0D; ++c) expected.insert(c);
    for (uint32_t c = 0x2000; c <= 0x200A; ++c) expected.insert(c);
    std::set<uint32_t> found;
    for (uint32_t c = 0; c < 0x110000; ++c) {
        if (unicode_class(c) == UnicodeClass::white_space) found.insert(c);
    }
    CHECK(found == expected);
}

TEST_CASE("the classes have as many members as Unicode 16.0 says") {
    std::map<UnicodeClass, int> count;
    for (char32_t c = 0; c < 0x110000; ++c) ++count[unicode_class(c)];
    CHECK(count[UnicodeClass::upper_letter] == 1858 + 31);        // Lu, Lt
    CHECK(count[UnicodeClass::lower_letter] == 2258);             // Ll
    CHECK(count[UnicodeClass::caseless_letter] == 404 + 136477);  // Lm, Lo
    CHECK(count[UnicodeClass::mark] == 2020 + 468 + 13);          // Mn, Mc, Me
    CHECK(count[UnicodeClass::number] == 760 + 236 + 915);        // Nd, Nl, No
    CHECK(count[UnicodeClass::white_space] == 25);
}
