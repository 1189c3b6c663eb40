// SPDX-License-Identifier: Apache-2.0
// Text from values: format_text("{} of {} bytes", n, size), in the language of std::format. Every caller
// shares one copy of fmt's machinery, in format_text.cpp.
#pragma once

#include <string>

#include <fmt/format.h>

namespace minim {

std::string vformat_text(fmt::string_view text, fmt::format_args args);

template <typename... Args>
std::string format_text(fmt::format_string<Args...> text, Args&&... args) {
    return vformat_text(text, fmt::make_format_args(args...));
}

}  // namespace minim
