// SPDX-License-Identifier: Apache-2.0
// Returns the error that a call throws as "status: message", so that a test compares both at once.
#pragma once

#include <string>

#include "base/error.h"

namespace minim::chat {

template <typename Call>
std::string error_text(Call&& call) {
    try {
        call();
    } catch (const Error& error) {
        switch (error.status()) {
            case Status::invalid:
                return std::string("invalid: ") + error.what();
            case Status::unsupported:
                return std::string("unsupported: ") + error.what();
            default:
                return fmt::format("status {}: {}", static_cast<int>(error.status()), error.what());
        }
    }
    return "no error";
}

}  // namespace minim::chat
