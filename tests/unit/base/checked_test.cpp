// SPDX-License-Identifier: Apache-2.0
#include "base/checked.h"

#include "support/catch.h"

using namespace minim;

TEST_CASE("checked products and sums that fit are exact") {
    uint64_t u = 0;
    CHECK(checked_mul(uint64_t{1} << 32, (uint64_t{1} << 32) - 1, u));
    CHECK(u == 0xFFFFFFFF00000000U);
    CHECK(checked_add(UINT64_MAX - 1, uint64_t{1}, u));
    CHECK(u == UINT64_MAX);
    int64_t i = 0;
    CHECK(checked_mul(INT64_MIN, int64_t{1}, i));
    CHECK(i == INT64_MIN);
}

TEST_CASE("checked products and sums that do not fit are refused") {
    uint64_t u = 0;
    CHECK_FALSE(checked_mul(uint64_t{1} << 32, uint64_t{1} << 32, u));
    CHECK_FALSE(checked_add(UINT64_MAX, uint64_t{1}, u));
    int64_t i = 0;
    CHECK_FALSE(checked_mul(INT64_MIN, int64_t{-1}, i));
    CHECK_FALSE(checked_add(INT64_MAX, int64_t{1}, i));
}

TEST_CASE("align_up gives the next multiple and leaves multiples alone") {
    static_assert(align_up(0, 64) == 0);
    static_assert(align_up(1, 64) == 64);
    static_assert(align_up(64, 64) == 64);
    static_assert(align_up(65, 64) == 128);
    static_assert(align_up(12345, 1) == 12345);
}
