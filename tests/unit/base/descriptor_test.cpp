// SPDX-License-Identifier: Apache-2.0
#include "base/descriptor.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/file.h"
#include "support/files.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::test;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

bool is_open(int descriptor) {
    return ::fcntl(descriptor, F_GETFD) >= 0;
}

}  // namespace

TEST_CASE("only a whole path of a descriptor is one") {
    CHECK(descriptor_of("/proc/self/fd/7") == 7);
    CHECK(descriptor_of("/dev/fd/0") == 0);
    CHECK(descriptor_of(descriptor_path(123)) == 123);
    for (const char* path : {"", "7", "/dev/fd/", "/dev/fd/-1", "/dev/fd/7/a", "/dev/fd/7 ", "/dev/fd/+7",
                             "/proc/self/fd/99999999999", "/proc/1/fd/7", "dev/fd/7"}) {
        INFO(path);
        CHECK(!descriptor_of(path));
    }
}

TEST_CASE("a copy of a descriptor outlives the original, and is closed with its owner") {
    const TemporaryFolder folder;
    const int original = ::open((folder / "a").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    int number = -1;
    {
        Descriptor copy = Descriptor::copy_of(original);
        ::close(original);
        Descriptor other;
        CHECK(other.number() == -1);
        other = std::move(copy);
        const Descriptor last(std::move(other));
        number = last.number();
        CHECK(is_open(number));
        CHECK(::fcntl(number, F_GETFD) == FD_CLOEXEC);
        write_to(number, bytes_of("text"));
        CHECK(position_of(number) == 4);
        set_position(number, 1);
        CHECK(position_of(number) == 1);
    }
    CHECK(!is_open(number));
    expect_error(Status::invalid, "-1", [] { Descriptor::copy_of(-1); });
    expect_error(Status::io, "descriptor", [&] { Descriptor::copy_of(number); });
    expect_error(Status::invalid, "-1", [] { position_of(-1); });
    expect_error(Status::invalid, "-1", [] { write_to(-1, {}); });
}

TEST_CASE("a file is read through an open descriptor, whatever its position and its path") {
    const TemporaryFolder folder;
    const std::string path = folder / "a";
    write_text(path, "0123456789");
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ::lseek(descriptor, 5, SEEK_SET);
    ::unlink(path.c_str());
    const File file("/dev/fd/" + std::to_string(descriptor));
    CHECK(file.size() == 10);
    std::string text(3, '?');
    file.read_at(1, std::as_writable_bytes(std::span(text)));
    CHECK(text == "123");
    CHECK(position_of(descriptor) == 5);
    ::close(descriptor);
    file.read_at(7, std::as_writable_bytes(std::span(text)));
    CHECK(text == "789");
    CHECK(MappedFile(file).bytes().size() == 10);

    const auto error = error_of([&] { const File closed(descriptor_path(descriptor)); });
    REQUIRE(error);
    CHECK(error->facts().os_code == EBADF);
}

TEST_CASE("a pipe that nobody reads is an error without a signal") {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    write_to(ends[1], bytes_of("read"));
    ::close(ends[0]);
    const auto error = error_of([&] { write_to(ends[1], bytes_of("lost")); });
    REQUIRE(error);
    CHECK(error->status() == Status::io);
    CHECK(error->facts().os_code == EPIPE);
    sigset_t set;
    ::sigpending(&set);
    CHECK(::sigismember(&set, SIGPIPE) == 0);
    ::pthread_sigmask(SIG_BLOCK, nullptr, &set);
    CHECK(::sigismember(&set, SIGPIPE) == 0);
    const auto no_position = error_of([&] { position_of(ends[1]); });
    REQUIRE(no_position);
    CHECK(no_position->facts().os_code == ESPIPE);
    ::close(ends[1]);
}
