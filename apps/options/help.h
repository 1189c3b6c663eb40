// SPDX-License-Identifier: Apache-2.0
// The table of options as text.
#pragma once

#include <string>

#include "options.h"

namespace program {

// What --help prints.
std::string help(Command command);

// The whole table as JSON: {"options": [...], "of_others": [...]}.
std::string options_json();

}  // namespace program
