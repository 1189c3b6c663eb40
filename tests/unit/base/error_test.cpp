// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <cstring>
#include <string>

#include "support/helpers.h"

using namespace minim;
using minim::test::error_of;

namespace {

constexpr size_t k_longest = 1023;

std::string kept(const std::string& message) {
    return Error(Status::invalid, Reason::none, message).what();
}

}  // namespace

TEST_CASE("an error carries its status, reason, text and figures") {
    ErrorFacts facts;
    facts.os_code = 5;
    facts.offset = 77;
    const Error error(Status::format, Reason::shape, "tensor x", facts);
    CHECK(error.status() == Status::format);
    CHECK(error.reason() == Reason::shape);
    CHECK(error.facts().os_code == 5);
    CHECK(error.facts().offset == 77);
    CHECK(std::string(error.what()) == "tensor x");
}

TEST_CASE("an error text of exactly the room is kept whole") {
    const std::string text(k_longest, 'a');
    CHECK(kept(text) == text);
    CHECK(kept("").empty());
}

TEST_CASE("a longer error text keeps its beginning and its end") {
    const std::string text = kept("regex '" + std::string(100'000, 'a') + "': unmatched ) at byte 99999");
    CHECK(text.size() == k_longest);
    CHECK(text.starts_with("regex 'aaa"));
    CHECK(text.ends_with("aaa': unmatched ) at byte 99999"));
    CHECK(text.find("aaa ... aaa") != std::string::npos);
}

TEST_CASE("an error text is cut between characters, never inside one") {
    for (const std::string character : {"\u00E9", "\u20AC", "\U0001F437"}) {
        std::string middle;
        while (middle.size() < 3000) middle += character;
        for (size_t shift = 0; shift < 8; ++shift) {
            const std::string begin(shift, 'a');
            const std::string end(7 - shift, 'z');
            const std::string text = kept(begin + middle + end);
            INFO(character << ", " << shift);
            CHECK(text.size() <= k_longest);
            CHECK(text.size() > k_longest - 8);
            const size_t cut = text.find(" ... ");
            REQUIRE(cut != std::string::npos);
            CHECK((cut - begin.size()) % character.size() == 0);
            CHECK((text.size() - cut - 5 - end.size()) % character.size() == 0);
            CHECK(text.starts_with(begin + character));
            CHECK(text.ends_with(character + end));
        }
    }
}

TEST_CASE("of a long text of continuation bytes alone nothing is kept but that it is cut") {
    CHECK(kept(std::string(5000, '\x80')) == " ... ");
}

TEST_CASE("a bad file is an io error where its reason is io, else a format error") {
    CHECK(error_of([] { fail_file(Reason::io, "x"); })->status() == Status::io);
    CHECK(error_of([] { fail_file(Reason::truncated, "x"); })->status() == Status::format);
    CHECK(error_of([] { fail_file(Reason::truncated, "{} of {}", 1, 2); })->what() == std::string("1 of 2"));
}

TEST_CASE("a broken invariant is an internal error") {
    CHECK(error_of([] { fail_internal("x"); })->status() == Status::internal);
}

TEST_CASE("out of memory states the bytes in text and figures") {
    const auto error = error_of([] { fail_out_of_memory("the cache", 5000, 1234); });
    REQUIRE(error);
    CHECK(error->status() == Status::out_of_memory);
    CHECK(std::string(error->what()) == "the cache: 5000 bytes needed, 1234 bytes available");
    CHECK(error->facts().requested == 5000);
    CHECK(error->facts().available == 1234);
}

TEST_CASE("figures beyond the signed range become its largest value") {
    const auto error = error_of([] { fail_out_of_memory("x", UINT64_MAX, UINT64_MAX); });
    REQUIRE(error);
    CHECK(error->facts().requested == INT64_MAX);
    CHECK(error->facts().available == INT64_MAX);
}

TEST_CASE("out of memory with a very long subject is still an error") {
    const std::string subject(4000, 's');
    const auto error = error_of([&] { fail_out_of_memory(subject, 1, 2); });
    REQUIRE(error);
    CHECK(std::strlen(error->what()) <= k_longest);
    CHECK(error->facts().requested == 1);
}
