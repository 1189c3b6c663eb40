// SPDX-License-Identifier: Apache-2.0
#include "base/buffer.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/memory_info.h"
#include "base/page.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::test;

namespace {

bool all_zero(const Buffer& buffer) {
    return std::all_of(buffer.data(), buffer.data() + buffer.size(),
                       [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

TEST_CASE("a buffer of no bytes is empty") {
    const Buffer none(0, "nothing");
    CHECK(none.data() == nullptr);
    CHECK(none.size() == 0);
    CHECK(Buffer().data() == nullptr);
}

TEST_CASE("a buffer is zeroed, page-aligned and of the size asked for") {
    for (const uint64_t bytes :
         {uint64_t{1}, uint64_t{4095}, uint64_t{4096}, uint64_t{4097}, (uint64_t{2} << 20) + 1}) {
        INFO(bytes);
        const Buffer buffer(bytes, "test");
        CHECK(buffer.size() == bytes);
        CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % system_page_bytes() == 0);
        CHECK(all_zero(buffer));
        buffer.data()[bytes - 1] = std::byte{7};
    }
}

TEST_CASE("a buffer larger than the machine is out of memory, with the figures") {
    for (const uint64_t bytes : {UINT64_MAX, uint64_t{1} << 60}) {
        const auto error = error_of([&] { const Buffer buffer(bytes, "the weights"); });
        REQUIRE(error);
        CHECK(error->status() == Status::out_of_memory);
        CHECK(std::string(error->what())
                  .starts_with("the weights: " + std::to_string(bytes) + " bytes needed"));
        CHECK(error->facts().requested == static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX)));
        CHECK(error->facts().available > 0);
    }
}

TEST_CASE("any range of a buffer can be prefaulted, and its bytes stay") {
    const uint64_t page = system_page_bytes();
    CHECK(page >= k_page_bytes);
    CHECK((page & (page - 1)) == 0);
    Buffer buffer(8 * page, "test", Buffer::Presence::later);
    buffer.data()[page + 5] = std::byte{9};
    for (const uint64_t from : {uint64_t{0}, uint64_t{1}, page - 1, page + 5, 7 * page}) {
        for (const uint64_t count : {uint64_t{0}, uint64_t{1}, page}) buffer.prefault(from, count, "test");
    }
    CHECK(buffer.data()[page + 5] == std::byte{9});
}

TEST_CASE("a moved buffer takes the block along") {
    Buffer first(100, "first");
    std::byte* data = first.data();
    Buffer second(std::move(first));
    CHECK(second.data() == data);
    CHECK(first.data() == nullptr);
    CHECK(first.size() == 0);
    Buffer third(5000, "third");
    third = std::move(second);
    CHECK(third.data() == data);
    CHECK(third.size() == 100);
    CHECK(second.size() == 0);
}
