// SPDX-License-Identifier: Apache-2.0
#include "base/cache.h"

#include <numeric>
#include <vector>

#include "support/catch.h"

using namespace minim;

TEST_CASE("what caches have written back is what was written") {
    std::vector<unsigned char> bytes(10000);
    std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(3));
    const std::vector<unsigned char> expected = bytes;
    const auto all = std::as_bytes(std::span(bytes));
    for (const size_t from : {0, 1, 63})
        for (const size_t count : {0, 1, 64, 65, 5000}) evict_from_caches(all.subspan(from, count));
    evict_from_caches(all);
    CHECK(bytes == expected);
}
