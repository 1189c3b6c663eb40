// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include "support/catch.h"

using namespace minim;

namespace {

void check(std::string_view text, Utf8State state, int length, char32_t code_point = 0) {
    CAPTURE(std::string(text));
    const Utf8Step step = next_utf8(text);
    CHECK(step.state == state);
    CHECK(int{step.length} == length);
    if (state == Utf8State::complete) CHECK(step.code_point == code_point);
}

}  // namespace

TEST_CASE("every code point is read back as it was written") {
    for (char32_t code_point = 0; code_point < 0x110000; ++code_point) {
        if (code_point >= 0xD800 && code_point < 0xE000) continue;
        std::string text;
        append_utf8(code_point, text);
        const Utf8Step step = next_utf8(text);
        REQUIRE(step.state == Utf8State::complete);
        REQUIRE(step.code_point == code_point);
        REQUIRE(step.length == text.size());
    }
}

TEST_CASE("overlong forms, surrogates and values above U+10FFFF are invalid") {
    check("\xC0\x80", Utf8State::invalid, 1);
    check("\xC1\xBF", Utf8State::invalid, 1);
    check("\xE0\x9F\xBF", Utf8State::invalid, 1);
    check("\xED\xA0\x80", Utf8State::invalid, 1);
    check("\xF0\x8F\xBF\xBF", Utf8State::invalid, 1);
    check("\xF4\x90\x80\x80", Utf8State::invalid, 1);
    check("\xF5\x80\x80\x80", Utf8State::invalid, 1);
    check("\x80", Utf8State::invalid, 1);
    check("\xFF", Utf8State::invalid, 1);
    check("\xED\x9F\xBF", Utf8State::complete, 3, 0xD7FF);
    check("\xF4\x8F\xBF\xBF", Utf8State::complete, 4, 0x10FFFF);
}

TEST_CASE("an invalid step has the length of the maximal subpart") {
    check(
        "\xE2\x82"
        "a",
        Utf8State::invalid, 2);
    check(
        "\xF0\x9F\x90"
        "a",
        Utf8State::invalid, 3);
    check(
        "\xF0\x9F"
        "a",
        Utf8State::invalid, 2);
    check(
        "\xC3"
        "a",
        Utf8State::invalid, 1);
    check("\xE2\xC3\xA9", Utf8State::invalid, 1);
}

TEST_CASE("text that may go on is incomplete, text that cannot is not") {
    check("\xC3", Utf8State::incomplete, 1);
    check("\xE2\x82", Utf8State::incomplete, 2);
    check("\xF0\x9F\x90", Utf8State::incomplete, 3);
    check("\xF0", Utf8State::incomplete, 1);
    check("\xE0\x80", Utf8State::invalid, 1);
    check("\xF4\x90", Utf8State::invalid, 1);
}

TEST_CASE("well-formed UTF-8 sequences have their length, all others have none") {
    CHECK(utf8_sequence_length("a") == 1);
    CHECK(utf8_sequence_length("\xC3\xA9") == 2);
    CHECK(utf8_sequence_length("\xE2\x82\xAC!") == 3);
    CHECK(utf8_sequence_length("\xF0\x9F\x98\x80") == 4);
    CHECK(utf8_sequence_length("\xF4\x8F\xBF\xBF") == 4);
    CHECK(utf8_sequence_length("") == 0);
    CHECK(utf8_sequence_length("\x80") == 0);
    CHECK(utf8_sequence_length("\xC0\x80") == 0);          // overlong
    CHECK(utf8_sequence_length("\xE0\x9F\xBF") == 0);      // overlong
    CHECK(utf8_sequence_length("\xF0\x8F\xBF\xBF") == 0);  // overlong
    CHECK(utf8_sequence_length("\xED\xA0\x80") == 0);      // surrogate
    CHECK(utf8_sequence_length("\xF4\x90\x80\x80") == 0);  // above U+10FFFF
    CHECK(utf8_sequence_length("\xE2\x82") == 0);          // cut short
    CHECK(utf8_sequence_length("\xC3(") == 0);
}
