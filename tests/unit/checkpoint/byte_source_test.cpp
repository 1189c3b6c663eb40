// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/byte_source.h"

#include "support.h"

namespace minim::checkpoint::testing {
namespace {

TEST_CASE("fields are read in order across the edge of the window") {
    test::ByteWriter bytes;
    constexpr uint32_t k_count = 50'001;  // 200 KB with an odd start: larger than the window
    bytes.number(uint8_t{7});
    for (uint32_t i = 0; i < k_count; ++i) bytes.number(i);
    bytes.string(std::string(100'000, 'x'));
    bytes.number(2.5);
    const ByteSource source("memory", bytes.bytes);
    HeaderReader in(source);
    CHECK(in.number<uint8_t>("a byte") == 7);
    bool same = true;
    for (uint32_t i = 0; i < k_count; ++i) same = same && in.number<uint32_t>("a number") == i;
    CHECK(same);
    std::string text = "before ";
    in.append_string(text, "a string", 1 << 20);
    CHECK(text == "before " + std::string(100'000, 'x'));
    CHECK(in.number<double>("a double") == 2.5);
    CHECK(in.left() == 0);
    CHECK(in.position() == source.size());
}

TEST_CASE("a field that passes the end is truncated and the error says where") {
    test::ByteWriter bytes;
    bytes.number(uint32_t{1});
    bytes.number(uint16_t{2});
    const ByteSource source("some.gguf", bytes.bytes);
    HeaderReader in(source);
    in.number<uint32_t>("a number");
    const auto error = error_of([&] { in.number<uint32_t>("the version"); });
    REQUIRE(error);
    CHECK(error->reason() == Reason::truncated);
    CHECK(error->status() == Status::format);
    CHECK(error->facts().offset == 4);
    CHECK(std::string(error->what()) ==
          "some.gguf: the file ends inside the version: 4 bytes needed, 2 left (byte 4)");
}

TEST_CASE("a string length is judged by the file, by the cap and by what is left") {
    const auto reason = [](uint64_t length, uint64_t cap) {
        test::ByteWriter bytes;
        bytes.number(uint64_t{0});
        bytes.number(length);
        bytes.raw(bytes_of("abcd"));
        const ByteSource source("s", bytes.bytes);
        HeaderReader in(source);
        in.number<uint64_t>("padding");
        return reason_of([&] { in.string_length("a name", cap); });
    };
    CHECK(reason(4, 4) == "no error");
    CHECK(reason(5, 10) == "truncated");
    CHECK(reason(20, 30) == "truncated");
    CHECK(reason(21, 30) == "limit");
    CHECK(reason(4, 3) == "limit");
    CHECK(reason(UINT64_MAX, 30) == "limit");
    CHECK(reason(UINT64_MAX - 15, UINT64_MAX) == "limit");
}

TEST_CASE("memory as a source has the bounds of a file") {
    const ByteSource source("s", bytes_of("abcd"));
    std::byte out[2];
    source.read_at(2, out);
    CHECK(out[1] == std::byte{'d'});
    CHECK(reason_of([&] { source.read_at(3, out); }) == "truncated");
    CHECK(reason_of([&] { source.read_at(UINT64_MAX, out); }) == "truncated");
}

}  // namespace
}  // namespace minim::checkpoint::testing
