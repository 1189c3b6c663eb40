// SPDX-License-Identifier: Apache-2.0
// Failures of the program itself, as the library's exceptions.
#pragma once

#include <algorithm>
#include <string_view>

#include "minim/minim.hpp"

namespace cli {

[[noreturn]] inline void fail(minim_status status, std::string_view message, int os_code = 0) {
    minim_error error = MINIM_ERROR_INIT;
    error.status = status;
    error.os_code = os_code;
    error.device = -1;
    error.offset = -1;
    constexpr size_t k_room = sizeof(error.message) - 1;
    if (message.size() <= k_room) {
        std::copy(message.begin(), message.end(), error.message);
    } else {  // a long message quotes a path first and ends with the reason: keep both ends
        constexpr std::string_view k_cut = " ... ";
        constexpr size_t k_head = k_room / 2;
        char* end = std::copy_n(message.begin(), k_head, error.message);
        end = std::copy(k_cut.begin(), k_cut.end(), end);
        std::copy(message.end() - (k_room - k_head - k_cut.size()), message.end(), end);
    }
    throw minim::Exception(error);
}

}  // namespace cli
