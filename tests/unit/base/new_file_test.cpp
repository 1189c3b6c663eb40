#include "base/new_file.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <string>

#include "support/files.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::test;

namespace {

void write(NewFile& file, std::string_view text) {
    file.write(std::as_bytes(std::span(text)));
}

void put(const std::string& path, std::string_view text) {
    NewFile file(path, text.size());
    write(file, text);
    file.commit();
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

TEST_CASE("a file gets the permissions that the process gives new files") {
    const TemporaryFolder folder;
    const mode_t before = ::umask(0027);
    put(folder / "a", "text");
    ::umask(before);
    struct stat info {};
    REQUIRE(::stat((folder / "a").c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0640);
}
