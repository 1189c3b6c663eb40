// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "support/helpers.h"

using namespace minim;

namespace {

std::string sha256_of(std::string_view text, size_t piece) {
    Sha256 sha;
    for (size_t at = 0; at < text.size(); at += piece) {
        const std::string_view part = text.substr(at, piece);
        sha.add(std::as_bytes(std::span(part)));
    }
    return sha.finish();
}

}  // namespace

TEST_CASE("SHA-256 of texts of FIPS 180-4") {
    CHECK(sha256_of("", 1) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(sha256_of("abc", 64) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 64) ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(sha256_of(std::string(1'000'000, 'a'), 999) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 does not depend on the pieces in which bytes are added") {
    std::string text;
    for (size_t n = 0; n < 200; ++n) {
        const std::string whole = sha256_of(text, 1000);
        for (const size_t piece : {1, 55, 56, 63, 64, 65}) CHECK(sha256_of(text, piece) == whole);
        text += static_cast<char>('a' + n % 26);
    }
}
