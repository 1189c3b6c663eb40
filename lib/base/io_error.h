// Errors of the operating system, as every file of the library reports them.
#pragma once

#include <string_view>

namespace minim {

// Throws not_found where the path leads nowhere, else io: "PATH: cannot ACTION: what errno `code` means".
[[noreturn]] void fail_io(std::string_view path, std::string_view action, int code);

}  // namespace minim
