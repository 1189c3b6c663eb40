// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/text_file.h"

#include "support.h"

namespace minim::checkpoint::testing {
namespace {

TEST_CASE("a text file is read whole, up to the limit") {
    const TemporaryFolder folder;
    test::write_bytes(folder / "a.json", bytes_of("{\"a\": 1}\n"));
    CHECK(read_text_file(folder / "a.json", 9) == "{\"a\": 1}\n");
    CHECK(reason_of([&] { read_text_file(folder / "a.json", 8); }) == "limit");
    test::write_bytes(folder / "empty", {});
    CHECK(read_text_file(folder / "empty", 0).empty());
    const auto missing = error_of([&] { read_text_file(folder / "b.json", 8); });
    REQUIRE(missing);
    CHECK(missing->status() == Status::not_found);
}

}  // namespace
}  // namespace minim::checkpoint::testing
