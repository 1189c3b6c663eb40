// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_alphabet.h"

#include <set>

#include "support/catch.h"

using namespace minim::tokenizer;

TEST_CASE("bytes that print stand for themselves and the rest for U+0100 and on") {
    CHECK(stand_in('!') == U'!');
    CHECK(stand_in('~') == U'~');
    CHECK(stand_in(0xA1) == 0xA1);
    CHECK(stand_in(0xFF) == 0xFF);
    CHECK(stand_in(0x00) == 0x100);
    CHECK(stand_in(0x0A) == 0x10A);
    CHECK(stand_in(0x20) == 0x120);
    CHECK(stand_in(0x7F) == 0x121);
    CHECK(stand_in(0xA0) == 0x142);
    CHECK(stand_in(0xAD) == 0x143);
}

TEST_CASE("every byte has its own stand-in and comes back from it") {
    std::set<char32_t> seen;
    std::string all;
    for (int byte = 0; byte < 256; ++byte) {
        seen.insert(stand_in(static_cast<uint8_t>(byte)));
        all.push_back(static_cast<char>(byte));
    }
    CHECK(seen.size() == 256);
    std::string back;
    REQUIRE(append_bytes_of_stand_ins(to_stand_ins(all), back));
    CHECK(back == all);
}

TEST_CASE("text that is not all stand-ins leaves the bytes alone") {
    std::string bytes = "kept";
    CHECK_FALSE(append_bytes_of_stand_ins("ab c", bytes));
    CHECK_FALSE(append_bytes_of_stand_ins("ab\u0144", bytes));
    CHECK_FALSE(append_bytes_of_stand_ins("ab\u00AD", bytes));
    CHECK_FALSE(append_bytes_of_stand_ins("ab\U0001F436", bytes));
    CHECK_FALSE(append_bytes_of_stand_ins("ab\xC4", bytes));
    CHECK(bytes == "kept");
    CHECK(append_bytes_of_stand_ins("", bytes));
    CHECK(append_bytes_of_stand_ins("\u0120a", bytes));
    CHECK(bytes == "kept a");
}
