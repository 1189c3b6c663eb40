#include "checkpoint/printable.h"

#include "support/catch.h"

namespace minim::checkpoint {
namespace {

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

TEST_CASE("bytes that are no text are shown as escapes") {
    CHECK(printable("blk.0") == "\"blk.0\"");
    CHECK(printable("a\n\"\\\x7F") == "\"a\\x0A\\\"\\\\\\x7F\"");
    CHECK(printable("\xFF\xC3\xA9") == "\"\\xFF\xC3\xA9\"");
    CHECK(printable(std::string_view("a\0b", 3)) == "\"a\\x00b\"");
}

TEST_CASE("a long name is cut between characters and marked as cut") {
    CHECK(printable("abcdef", 3) == "\"abc\"...");
    CHECK(printable("ab\xC3\xA9", 3) == "\"ab\xC3\xA9\"");
    CHECK(printable("ab\xC3\xA9z", 3) == "\"ab\xC3\xA9\"...");
}

}  // namespace
}  // namespace minim::checkpoint
