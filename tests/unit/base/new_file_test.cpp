// SPDX-License-Identifier: Apache-2.0
#include "base/new_file.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string>

#include "support/files.h"
#include "support/helpers.h"
#include "support/refused_calls.h"

using namespace minim;
using namespace minim::test;

namespace {

void write(NewFile& file, std::string_view text) {
    file.write(std::as_bytes(std::span(text)));
}

void put(const std::string& path, std::string_view text, Readers readers = Readers::usual) {
    NewFile file(path, text.size(), readers);
    write(file, text);
    file.commit();
}

#if defined(SYS_rename)
constexpr long k_rename = SYS_rename;
#else
constexpr long k_rename = SYS_renameat;
#endif

mode_t mode_of(const std::string& path) {
    struct stat info {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    return info.st_mode & 0777;
}

}  // namespace

TEST_CASE("a new file has its name when it is committed, and not before") {
    const TemporaryFolder folder;
    const std::string path = folder / "a";
    {
        NewFile file(path, 10);
        write(file, "hello ");
        CHECK_FALSE(std::filesystem::exists(path));
        write(file, "file");
        file.commit();
        CHECK(text_of(path) == "hello file");
    }
    CHECK(text_of(path) == "hello file");
    CHECK(n_files(folder) == 1);
}

TEST_CASE("what is written anywhere in a new file lies there, and appending goes on where it was") {
    const TemporaryFolder folder;
    NewFile file(folder / "a", 12);
    write(file, "one");
    file.write_at(9, std::as_bytes(std::span(std::string_view("end"))));
    write(file, " more");
    file.write_at(0, std::as_bytes(std::span(std::string_view("O"))));
    file.commit();
    CHECK(text_of(folder / "a") == std::string("One more\0end", 12));
}

TEST_CASE("a new file takes the place of the one that had its name") {
    const TemporaryFolder folder;
    put(folder / "a", "a long old text");
    put(folder / "a", "new");
    CHECK(text_of(folder / "a") == "new");
    CHECK(n_files(folder) == 1);
}

TEST_CASE("a file that is not committed leaves the old one and nothing else") {
    const TemporaryFolder folder;
    put(folder / "a", "old");
    {
        NewFile file(folder / "a", 3);
        write(file, "new");
    }
    CHECK(text_of(folder / "a") == "old");
    CHECK(n_files(folder) == 1);
}

TEST_CASE("a file of its folder's name, without one, or where there is no folder is refused") {
    const TemporaryFolder folder;
    expect_error(Status::invalid, "empty", [] { NewFile("", 0); });
    expect_error(Status::io, folder.path(), [&] { NewFile(folder.path(), 0); });
    expect_error(Status::not_found, "no/such/file", [&] { NewFile(folder / "no/such/file", 0); });
    put(folder / "a", "old");
    expect_error(Status::not_found, "a/b", [&] { NewFile(folder / "a/b", 0); });
}

TEST_CASE("a path without a folder is one in the current folder") {
    const TemporaryFolder folder;
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path());
    put("here", "text");
    std::filesystem::current_path(before);
    CHECK(text_of(folder / "here") == "text");
}

TEST_CASE("more than the disk holds is refused at once") {
    const TemporaryFolder folder;
    for (const uint64_t bytes : {uint64_t{1} << 60, std::numeric_limits<uint64_t>::max()})
        expect_error(Status::io, folder / "huge", [&] { NewFile(folder / "huge", bytes); });
    CHECK(n_files(folder) == 0);
}

TEST_CASE("a process that is killed while it writes leaves the old file") {
    const TemporaryFolder folder;
    const std::string path = folder / "a";
    put(path, "old");
    int written[2];
    REQUIRE(::pipe(written) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        NewFile file(path, 3);
        write(file, "new");
        if (::write(written[1], "x", 1) != 1) ::_exit(1);
        for (;;) ::pause();
    }
    char done = 0;
    REQUIRE(::read(written[0], &done, 1) == 1);
    REQUIRE(::kill(child, SIGKILL) == 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    ::close(written[0]);
    ::close(written[1]);
    CHECK(text_of(path) == "old");
    CHECK(n_files(folder) == 1);
}

TEST_CASE("a file gets the permissions that the process gives new files, or its owner's alone") {
    const TemporaryFolder folder;
    for (const mode_t mask : {mode_t{0027}, mode_t{0000}, mode_t{0077}}) {
        const mode_t before = ::umask(mask);
        put(folder / "usual", "text");
        put(folder / "owner", "text", Readers::owner);
        ::umask(before);
        CHECK(mode_of(folder / "usual") == (0666 & ~mask));
        CHECK(mode_of(folder / "owner") == 0600);
        std::filesystem::remove(folder / "usual");
        std::filesystem::remove(folder / "owner");
    }
}

TEST_CASE("a file in the place of another one has its permissions, whoever may read new ones") {
    const TemporaryFolder folder;
    const std::string path = folder / "a";
    put(path, "old");
    for (const mode_t mode : {mode_t{0600}, mode_t{0640}, mode_t{0666}, mode_t{0755}, mode_t{0400}}) {
        for (const Readers readers : {Readers::usual, Readers::owner}) {
            REQUIRE(::chmod(path.c_str(), mode) == 0);
            put(path, "new", readers);
            CHECK(mode_of(path) == mode);
        }
    }
}

TEST_CASE("a file that a symbolic link points to is replaced, and the link stays") {
    const TemporaryFolder folder;
    const std::string link = folder / "link";
    std::filesystem::create_directory(folder / "deep");
    put(folder / "deep/target", "old");
    REQUIRE(::chmod((folder / "deep/target").c_str(), 0620) == 0);
    std::filesystem::create_symlink("deep/second", link);
    std::filesystem::create_symlink("target", folder / "deep/second");
    put(link, "new");
    CHECK(std::filesystem::is_symlink(link));
    CHECK(std::filesystem::is_symlink(folder / "deep/second"));
    CHECK(text_of(folder / "deep/target") == "new");
    CHECK(mode_of(folder / "deep/target") == 0620);
    CHECK(n_files(folder) == 2);
    CHECK(std::distance(std::filesystem::directory_iterator(folder / "deep"), {}) == 2);

    // A link that points to no file yet.
    std::filesystem::remove(folder / "deep/target");
    put(link, "first", Readers::owner);
    CHECK(std::filesystem::is_symlink(link));
    CHECK(text_of(folder / "deep/target") == "first");
    CHECK(mode_of(folder / "deep/target") == 0600);

    // A link that contains an absolute path.
    std::filesystem::create_symlink(folder / "deep/target", folder / "whole");
    put(folder / "whole", "again");
    CHECK(text_of(folder / "deep/target") == "again");

    std::filesystem::create_symlink("circle", folder / "circle");
    expect_error(Status::io, "circle", [&] { put(folder / "circle", "text"); });
    std::filesystem::create_symlink("no/folder/file", folder / "nowhere");
    expect_error(Status::not_found, "nowhere", [&] { put(folder / "nowhere", "text"); });
}

TEST_CASE("a file is saved where the system refuses a step that can be done without") {
    const std::vector<RefusedCall> refusals = {
        {SYS_fsync, EINVAL},         {SYS_fsync, ENOSYS},          {SYS_fsync, EPERM},   {SYS_fsync, EROFS},
        {SYS_linkat, EPERM},         {SYS_linkat, ENOSYS},         {SYS_linkat, ENOENT}, {SYS_linkat, EXDEV},
        {SYS_linkat, EOPNOTSUPP},    {SYS_fallocate, EPERM},       {SYS_fchmod, EPERM},  {SYS_fchown, ENOSYS},
        {SYS_fallocate, EOPNOTSUPP}, {SYS_sync_file_range, ENOSYS}};
    for (const RefusedCall& call : refusals) {
        INFO(call.number << " " << call.code);
        const TemporaryFolder folder;
        const auto text = where_refused({call}, [&] {
            put(folder / "a", "a long old text");
            ::chmod((folder / "a").c_str(), 0640);
            put(folder / "a", "new");
            return text_of(folder / "a");
        });
        if (!text) {
            WARN("skipped: no seccomp");
            return;
        }
        CHECK(*text == "new");
        CHECK(n_files(folder) == 1);
    }
}

TEST_CASE("where files cannot be renamed, the old one is overwritten, and its name and permissions stay") {
    for (const uint32_t code : {EBUSY, EPERM, ENOSYS, EXDEV, EOPNOTSUPP}) {
        INFO(code);
        const TemporaryFolder folder;
        const std::string path = folder / "a";
        write_text(path, std::string(5000, 'x'));
        REQUIRE(::chmod(path.c_str(), 0640) == 0);
        const std::vector<RefusedCall> calls = {
            {k_rename, code}, {SYS_renameat, code}, {SYS_renameat2, code}};
        const auto save = [&](const std::string& name) {
            put(folder / name, std::string(3000, 'y'));
            return text_of(folder / name);
        };
        const auto text = where_refused(calls, [&] { return save("a"); });
        if (!text) return;
        CHECK(*text == std::string(3000, 'y'));
        CHECK(mode_of(path) == 0640);
        CHECK(where_refused(calls, [&] { return save("b"); }) == std::string(3000, 'y'));
        CHECK(n_files(folder) == 2);
        // A sandbox may allow one of the calls.
        if (code == ENOSYS)
            CHECK(where_refused({calls[0]}, [&] { return save("c"); }) == std::string(3000, 'y'));
    }
}

TEST_CASE("a full or broken disk is an error that leaves the old file and nothing else") {
    for (const RefusedCall& call :
         {RefusedCall{SYS_fsync, EIO}, RefusedCall{SYS_fsync, ENOSPC}, RefusedCall{SYS_pwrite64, ENOSPC},
          RefusedCall{SYS_fallocate, ENOSPC}, RefusedCall{k_rename, EIO}}) {
        INFO(call.number << " " << call.code);
        const TemporaryFolder folder;
        write_text(folder / "a", "old");
        const auto text = where_refused({call}, [&] {
            put(folder / "a", "new");
            return std::string("saved");
        });
        if (!text) return;
        CHECK(text->starts_with(folder / "a"));
        CHECK(text_of(folder / "a") == "old");
        CHECK(n_files(folder) == 1);
    }
}

TEST_CASE("every name that the system takes can be saved, with and without files that have no name yet") {
    std::string wide;  // characters of three bytes: the cut must not be inside one
    while (wide.size() + 3 <= 255) wide += "\u65e5";
    for (const std::string& name :
         {std::string(126, 'a'), std::string(127, 'a'), std::string(238, 'a'), std::string(239, 'a'),
          std::string(250, 'a'), std::string(255, 'a'), wide}) {
        INFO(name.size());
        const TemporaryFolder folder;
        const std::string path = folder / name;
        put(path, "old");
        put(path, "new");
        CHECK(text_of(path) == "new");
        const auto text = where_refused({{SYS_linkat, EPERM}}, [&] {
            put(path, "newer");
            return text_of(path);
        });
        if (text) CHECK(*text == "newer");
        CHECK(n_files(folder) == 1);
    }
    const TemporaryFolder folder;
    expect_error(Status::io, "too long", [&] { put(folder / std::string(256, 'a'), "text"); });
    CHECK(n_files(folder) == 0);
}
