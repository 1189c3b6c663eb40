// SPDX-License-Identifier: Apache-2.0
#include "base/cancel.h"

#include <thread>

#include "support/helpers.h"

using namespace minim;
using namespace minim::test;

TEST_CASE("no token is never cancelled") {
    CHECK_FALSE(is_cancelled(nullptr));
    CHECK_NOTHROW(throw_if_cancelled(nullptr, "anything"));
}

TEST_CASE("a triggered token stays triggered until it is reset") {
    CancelToken token;
    CHECK_FALSE(is_cancelled(&token));
    std::thread([&] { token.trigger(); }).join();
    CHECK(is_cancelled(&token));
    expect_error(Status::cancelled, "loading", [&] { throw_if_cancelled(&token, "loading"); });
    CHECK(token.triggered());
    token.reset();
    CHECK_NOTHROW(throw_if_cancelled(&token, "loading"));
}

TEST_CASE("a token with a check is triggered while the check says so") {
    bool is_unwanted = false;
    CancelToken token([&] { return is_unwanted; });
    CHECK_FALSE(token.triggered());
    is_unwanted = true;
    CHECK(is_cancelled(&token));
    is_unwanted = false;
    CHECK_FALSE(token.triggered());
    token.trigger();
    CHECK(token.triggered());
}
