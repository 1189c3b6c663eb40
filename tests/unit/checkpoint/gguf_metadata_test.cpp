// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_metadata.h"

#include "checkpoint/byte_source.h"
#include "support.h"

namespace minim::checkpoint::testing {
namespace {

std::string reason(const test::ByteWriter& entries, uint64_t count) {
    return reason_of([&] {
        const ByteSource source("m.gguf", entries.bytes);
        HeaderReader in(source);
        read_gguf_metadata(in, count);
    });
}

test::ByteWriter entry(std::string_view key, uint32_t type) {
    test::ByteWriter bytes;
    bytes.string(key);
    bytes.number(type);
    return bytes;
}

TEST_CASE("a key must be there, be short and hold no NUL") {
    test::ByteWriter fits = entry(std::string(k_name_cap_bytes, 'k'), 0);
    fits.number(uint8_t{1});
    CHECK(reason(fits, 1) == "no error");
    test::ByteWriter longer = entry(std::string(k_name_cap_bytes + 1, 'k'), 0);
    longer.number(uint8_t{1});
    CHECK(reason(longer, 1) == "limit");
    test::ByteWriter nul = entry(std::string_view("a\0b", 3), 0);
    nul.number(uint8_t{1});
    CHECK(reason(nul, 1) == "value");
    test::ByteWriter empty = entry("", 0);
    empty.number(uint8_t{1});
    CHECK(reason(empty, 1) == "value");
}

TEST_CASE("the same key with another type is a duplicate") {
    test::ByteWriter bytes = entry("a", 0);
    bytes.number(uint8_t{1});
    const size_t second = bytes.bytes.size();
    bytes.raw(entry("a", 4).bytes);
    bytes.number(uint32_t{1});
    const ByteSource source("m.gguf", bytes.bytes);
    HeaderReader in(source);
    const auto error = error_of([&] { read_gguf_metadata(in, 2); });
    REQUIRE(error);
    CHECK(error->reason() == Reason::duplicate);
    CHECK(error->facts().offset == static_cast<int64_t>(second));
}

TEST_CASE("unknown value and element types and nested arrays are type errors") {
    CHECK(reason(entry("a", 13), 1) == "type");
    CHECK(reason(entry("a", 0xFFFF'FFFF), 1) == "type");
    for (const uint32_t element : {9U, 13U, 0x8000'0000U}) {
        test::ByteWriter array = entry("a", 9);
        array.number(element);
        array.number(uint64_t{0});
        CHECK(reason(array, 1) == "type");
    }
}

TEST_CASE("an array count that the file cannot hold is a limit, one that is cut off is truncated") {
    const auto array = [](uint32_t element, uint64_t count, size_t bytes) {
        test::ByteWriter out = entry("a", 9);
        out.number(element);
        out.number(count);
        for (size_t i = 0; i < bytes; ++i) out.number(uint8_t{0});
        return reason(out, 1);
    };
    CHECK(array(4, 3, 12) == "no error");
    CHECK(array(4, 3, 11) == "truncated");
    CHECK(array(4, 100, 12) == "limit");
    CHECK(array(10, uint64_t{1} << 61, 64) == "limit");  // count * 8 is 0 modulo 2^64
    CHECK(array(4, (uint64_t{1} << 62) + 1, 64) == "limit");
    CHECK(array(8, uint64_t{1} << 61, 64) == "limit");
    CHECK(array(8, 2, 16) == "no error");  // two empty strings
    CHECK(array(8, 2, 15) == "truncated");
    CHECK(array(0, UINT64_MAX, 8) == "limit");
}

TEST_CASE("a boolean other than 0 and 1 is refused, in arrays too") {
    test::ByteWriter scalar = entry("a", 7);
    scalar.number(uint8_t{255});
    CHECK(reason(scalar, 1) == "value");
    test::ByteWriter array = entry("a", 9);
    array.number(uint32_t{7});
    array.number(uint64_t{3});
    array.raw(bytes_of(std::string_view("\0\1\2", 3)));
    const ByteSource source("m.gguf", array.bytes);
    HeaderReader in(source);
    const auto error = error_of([&] { read_gguf_metadata(in, 1); });
    REQUIRE(error);
    CHECK(error->reason() == Reason::value);
    CHECK(error->facts().offset == static_cast<int64_t>(array.bytes.size() - 1));
}

TEST_CASE("an end inside any field is truncated") {
    test::ByteWriter bytes = entry("key", 9);
    bytes.number(uint32_t{8});
    bytes.number(uint64_t{2});
    bytes.string("one");
    bytes.string("two");
    CHECK(reason(bytes, 1) == "no error");
    for (size_t size = 0; size < bytes.bytes.size(); ++size) {
        test::ByteWriter cut;
        cut.raw(std::span(bytes.bytes).first(size));
        INFO(size);
        const std::string found = reason(cut, 1);
        CHECK((found == "truncated" || found == "limit"));
    }
}

}  // namespace
}  // namespace minim::checkpoint::testing
