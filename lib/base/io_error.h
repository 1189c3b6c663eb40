// SPDX-License-Identifier: Apache-2.0
// Reports of the operating system's errors.
#pragma once

#include <string_view>

namespace minim {

// Throws not_found if the path does not exist, else io: "PATH: cannot ACTION: what errno `code` means".
[[noreturn]] void fail_io(std::string_view path, std::string_view action, int code);

}  // namespace minim
