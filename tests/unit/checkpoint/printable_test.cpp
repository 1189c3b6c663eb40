// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/printable.h"

#include "support/catch.h"

namespace minim::checkpoint {
namespace {

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
