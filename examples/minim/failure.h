// Failures of the program itself, in the form of the library's.
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
    const size_t length = std::min(message.size(), sizeof(error.message) - 1);
    std::copy_n(message.begin(), length, error.message);
    throw minim::Exception(error);
}

}  // namespace cli
