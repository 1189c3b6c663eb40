// SPDX-License-Identifier: Apache-2.0
// Checks that a call fails with this status, and with a message that contains this text.
#pragma once

#include <string>

#include "base/error.h"
#include "support/catch.h"

namespace minim::sampling {

template <typename Call>
void expect_error(Status status, const std::string& part, Call call) {
    std::string message;
    Status found = Status::ok;
    try {
        call();
    } catch (const Error& error) {
        found = error.status();
        message = error.what();
    }
    CHECK(found == status);
    INFO(message);
    CHECK(message.find(part) != std::string::npos);
}

}  // namespace minim::sampling
