// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "support/files.h"
#include "support/helpers.h"
#include "support/refused_calls.h"

using namespace minim;
using namespace minim::test;

namespace {

std::string written(const TemporaryFolder& folder, const std::string& name, const std::string& text) {
    std::string path = folder / name;
    write_text(path, text);
    return path;
}

std::string read(const File& file, uint64_t offset, size_t count) {
    std::string text(count, '?');
    file.read_at(offset, std::as_writable_bytes(std::span(text)));
    return text;
}

std::string text_of(const MappedFile& map) {
    return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}

}  // namespace

TEST_CASE("what a file is to forget leaves the page cache, and can be read again") {
    const TemporaryFolder folder;
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const std::string path = written(folder, "file", std::string(8 * page, 'x'));
    const int descriptor = ::open(path.c_str(), O_RDONLY);
    REQUIRE(descriptor >= 0);
    REQUIRE(::fsync(descriptor) == 0);  // pages that are not written yet stay
    ::close(descriptor);
    const File file(path);
    CHECK(read(file, 0, 8 * page) == std::string(8 * page, 'x'));
    const MappedFile map(file);
    const auto n_present = [&] {
        std::vector<unsigned char> present(8);
        REQUIRE(::mincore(const_cast<std::byte*>(map.bytes().data()), 8 * page, present.data()) == 0);
        return std::ranges::count_if(present, [](unsigned char flags) { return (flags & 1) != 0; });
    };
    struct statfs system {};
    REQUIRE(::statfs(path.c_str(), &system) == 0);
    constexpr auto k_tmpfs = 0x01021994;
    if (n_present() < 8 || system.f_type == k_tmpfs || std::getenv("MINIM_TEST_EMULATED") != nullptr) {
        WARN("skipped: this file system has no pages of files to drop");
        return;
    }
    file.forget(0, 8 * page);
    CHECK(n_present() == 0);
    CHECK(read(file, 0, 8 * page) == std::string(8 * page, 'x'));
}

TEST_CASE("a missing file is not found, and the error names path and system code") {
    const TemporaryFolder folder;
    const auto error = error_of([&] { const File file(folder / "none.gguf"); });
    REQUIRE(error);
    CHECK(error->status() == Status::not_found);
    CHECK(error->facts().os_code == ENOENT);
    CHECK(std::string(error->what()).find(folder / "none.gguf") != std::string::npos);
}

TEST_CASE("a path through a file is not found") {
    const TemporaryFolder folder;
    const std::string path = written(folder, "a", "x");
    expect_error(Status::not_found, path, [&] { const File file(path + "/b"); });
}

TEST_CASE("a folder is no file") {
    const TemporaryFolder folder;
    const auto error = error_of([&] { const File file(folder.path()); });
    REQUIRE(error);
    CHECK(error->status() == Status::io);
    CHECK(error->facts().os_code == EISDIR);
}

TEST_CASE("a pipe is no file, and opening it does not wait for a writer") {
    const TemporaryFolder folder;
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    expect_error(Status::io, "pipe", [&] { const File file(folder / "pipe"); });
}

TEST_CASE("an empty path is invalid") {
    expect_error(Status::invalid, "empty", [] { const File file(""); });
}

TEST_CASE("any range inside a file can be read") {
    const TemporaryFolder folder;
    const File file(written(folder, "a", "0123456789"));
    CHECK(file.size() == 10);
    CHECK(read(file, 0, 10) == "0123456789");
    CHECK(read(file, 3, 4) == "3456");
    CHECK(read(file, 10, 0).empty());
}

TEST_CASE("reading past the end is a truncated file") {
    const TemporaryFolder folder;
    const File file(written(folder, "a", "0123456789"));
    for (const auto& [offset, count] : {std::pair<uint64_t, size_t>{5, 6},
                                        {10, 1},
                                        {1000, 1},
                                        {UINT64_MAX, 1},
                                        {INT64_MAX, 2},
                                        {uint64_t{1} << 63, 5}}) {
        INFO(offset << " " << count);
        CHECK(reason_of([&, from = offset, n = count] { read(file, from, n); }) == "truncated");
    }
}

TEST_CASE("an empty file opens, reads nothing and maps to nothing") {
    const TemporaryFolder folder;
    const File file(written(folder, "empty", ""));
    CHECK(file.size() == 0);
    CHECK(reason_of([&] { read(file, 0, 1); }) == "truncated");
    CHECK(MappedFile(file).bytes().empty());
}

TEST_CASE("a moved file reads on, and the old one owns nothing") {
    const TemporaryFolder folder;
    File first(written(folder, "a", "first"));
    File second(std::move(first));
    CHECK(read(second, 0, 5) == "first");
    File third(written(folder, "b", "other"));
    third = std::move(second);
    CHECK(read(third, 0, 5) == "first");
    CHECK(third.path() == folder / "a");
    CHECK(third.size() == 5);
}

TEST_CASE("a mapped file shows the bytes of the file") {
    const TemporaryFolder folder;
    const File file(written(folder, "a", "mapped bytes"));
    CHECK(text_of(MappedFile(file)) == "mapped bytes");
}

TEST_CASE("a map outlives its file and its file's name") {
    const TemporaryFolder folder;
    const std::string path = written(folder, "a", "still here");
    const MappedFile map = [&] { return MappedFile(File(path)); }();
    std::filesystem::remove(path);
    CHECK(text_of(map) == "still here");
}

TEST_CASE("a moved map keeps its bytes") {
    const TemporaryFolder folder;
    MappedFile first{File(written(folder, "a", "one"))};
    MappedFile second(std::move(first));
    CHECK(text_of(second) == "one");
    CHECK(first.bytes().empty());  // NOLINT(bugprone-use-after-move, clang-analyzer-cplusplus.Move)
    MappedFile third{File(written(folder, "b", "three"))};
    third = std::move(second);
    CHECK(text_of(third) == "one");
    CHECK(second.bytes().empty());  // NOLINT(bugprone-use-after-move, clang-analyzer-cplusplus.Move)
}

TEST_CASE("a file that shrank after it was opened is truncated") {
    const TemporaryFolder folder;
    const std::string path = written(folder, "a", std::string(10000, 'x'));
    const File file(path);
    std::filesystem::resize_file(path, 100);
    CHECK(reason_of([&] { read(file, 0, 10000); }) == "truncated");
    CHECK(reason_of([&] { const MappedFile map(file); }) == "truncated");
}

TEST_CASE(
    "a file that cannot be mapped with MAP_SHARED is mapped privately, and one that cannot be mapped at all "
    "is an error") {
    const TemporaryFolder folder;
    const std::string path = written(folder, "a", "mapped bytes");
    const auto map = [&] { return text_of(MappedFile(File(path))); };
    const RefusedCall shared = {SYS_mmap, ENODEV, {{2, PROT_READ}, {3, MAP_SHARED}}};
    const RefusedCall privately = {SYS_mmap, ENODEV, {{2, PROT_READ}, {3, MAP_PRIVATE}}};
    const auto text = where_refused({shared}, map);
    if (!text) {
        WARN("skipped: no seccomp");
        return;
    }
    CHECK(*text == "mapped bytes");
    CHECK(where_refused({shared, privately}, map) == path + ": cannot map: No such device");
}

TEST_CASE("pages are prefaulted where the system refuses to do it at once") {
    const TemporaryFolder folder;
    const std::string path = written(folder, "a", std::string(10000, 'x'));
    for (const uint32_t code : {ENOSYS, EPERM, EINVAL}) {
        const auto text = where_refused({{SYS_madvise, code}}, [&] {
            const MappedFile map{File(path)};
            make_mapped_present(map.bytes());
            return text_of(map).substr(0, 3);
        });
        if (text) CHECK(*text == "xxx");
    }
}
