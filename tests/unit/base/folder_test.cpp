// SPDX-License-Identifier: Apache-2.0
#include "base/folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace minim;

namespace {

void make_file(const std::string& path) {
    const std::ofstream file(path);
}

}  // namespace

TEST_CASE("a folder's names are all returned, hidden ones too") {
    const test::TemporaryFolder folder;
    for (int i = 0; i < 300; ++i) make_file(folder / ("file" + std::to_string(i)));
    make_file(folder / ".hidden");
    std::filesystem::create_directory(folder / "inner");
    std::error_code error;
    const std::vector<std::string> names = names_in_folder(folder.path(), error);
    CHECK_FALSE(error);
    CHECK(names.size() == 302);
    for (const char* name : {"file0", "file299", ".hidden", "inner"})
        CHECK(std::ranges::count(names, name) == 1);
}

TEST_CASE("a folder that cannot be listed is an error, and an empty one is none") {
    const test::TemporaryFolder folder;
    std::error_code error;
    CHECK(names_in_folder(folder.path(), error).empty());
    CHECK_FALSE(error);
    CHECK(names_in_folder(folder / "missing", error).empty());
    CHECK(error == std::errc::no_such_file_or_directory);
    make_file(folder / "file");
    CHECK(names_in_folder(folder / "file", error).empty());
    CHECK(error == std::errc::not_a_directory);
}
