// SPDX-License-Identifier: Apache-2.0
// What a folder holds: lib/base/folder.h, which programs do not see.
#pragma once

#include <string>
#include <system_error>
#include <vector>

namespace program {

// Returns the names in a folder, in no order, without "." and "..". If it cannot be listed to its end, `error` says why, and the names
// before are returned. Throws std::bad_alloc, where libstdc++'s directory_iterator ends the process: it allocates in a noexcept function.
std::vector<std::string> names_in_folder(const std::string& folder, std::error_code& error);

}  // namespace program
