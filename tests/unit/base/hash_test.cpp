// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <string_view>
#include <vector>

#include "support/catch.h"

using namespace minim;

namespace {

uint64_t hash(std::string_view text, uint64_t seed = 0) {
    return hash_bytes(std::as_bytes(std::span(text)), seed);
}

}  // namespace

TEST_CASE("hashes have the values that files were written with") {
    CHECK(hash("") == 0x2D06'8005'38D3'94C2);
    CHECK(hash("minim") == hash("minim"));
    CHECK(hash("minim") != hash("minin"));
    CHECK(hash("minim", 1) != hash("minim", 2));
}

TEST_CASE("every byte of a long text counts") {
    std::vector<std::byte> bytes(5000);
    const uint64_t before = hash_bytes(bytes);
    for (size_t i = 0; i < bytes.size(); i += 37) {
        bytes[i] = std::byte{1};
        CHECK(hash_bytes(bytes) != before);
        bytes[i] = std::byte{0};
    }
    CHECK(hash_bytes(bytes) == before);
}
