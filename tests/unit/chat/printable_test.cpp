// SPDX-License-Identifier: Apache-2.0
#include "chat/printable.h"

#include "support/catch.h"

namespace minim::chat {
namespace {

TEST_CASE("letters, marks, symbols and the plain space are printable") {
    for (const char32_t c : {U' ', U'a', U'~', U'\u00A1', U'\u00E9', U'\u0301', U'\u65E5', U'\uFFFD',
                             U'\U0001F41D', U'\U000E0100'}) {
        INFO(static_cast<unsigned>(c));
        CHECK(is_printable(c));
    }
}

TEST_CASE("controls, other spaces, formats, private and unassigned characters are not printable") {
    for (const char32_t c :
         {U'\0', U'\x1F', U'\x7F', U'\x80', U'\x9F', U'\u00A0', U'\u00AD', U'\u0378', U'\u2003', U'\u200B',
          U'\u2028', U'\u2029', U'\u3000', U'\uE000', U'\uFEFF', U'\uFFFE', U'\U000E0041', U'\U0010FFFF'}) {
        INFO(static_cast<unsigned>(c));
        CHECK_FALSE(is_printable(c));
    }
}

TEST_CASE("both ends of a range belong to it") {
    CHECK(is_printable(0x7E));
    CHECK_FALSE(is_printable(0x7F));
    CHECK_FALSE(is_printable(0xA0));
    CHECK(is_printable(0xA1));
}

TEST_CASE("the number of printable characters is that of Unicode 14") {
    int count = 0;
    for (char32_t c = 0; c < 0x110000; ++c) count += is_printable(c) ? 1 : 0;
    CHECK(count == 144516);
}

}  // namespace
}  // namespace minim::chat
