// SPDX-License-Identifier: Apache-2.0
#include "base/hasher.h"

#include <algorithm>
#include <vector>

#include "base/hash.h"
#include "support/catch.h"

namespace minim {

TEST_CASE("the hash of pieces is that of the whole") {
    std::vector<std::byte> bytes(100'000);
    uint32_t state = 1;
    for (std::byte& byte : bytes)
        byte = static_cast<std::byte>((state = state * 1664525U + 1013904223U) >> 24);
    Hasher hasher;
    CHECK(hasher.value() == hash_bytes({}));
    for (const size_t piece : {size_t{1}, size_t{255}, size_t{4096}, bytes.size()}) {
        hasher.reset();
        for (size_t at = 0; at < bytes.size(); at += piece)
            hasher.add(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
        CHECK(hasher.value() == hash_bytes(bytes));
    }
}

}  // namespace minim
