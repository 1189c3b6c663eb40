// SPDX-License-Identifier: Apache-2.0
#include "base/pause.h"

#include <chrono>

#include "support/catch.h"

using namespace minim;

TEST_CASE("a spin ends when its time is over, and not before") {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds k_limit(2);
    const Clock::time_point start = Clock::now();
    Spin spin(k_limit);
    int64_t n_pauses = 0;
    while (spin.pause()) ++n_pauses;
    CHECK(Clock::now() - start >= k_limit);
    CHECK(n_pauses > 16);
    CHECK_FALSE(spin.pause());  // at once

    Spin none(std::chrono::seconds(0));
    CHECK_FALSE(none.pause());
}
