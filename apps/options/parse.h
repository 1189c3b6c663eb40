// SPDX-License-Identifier: Apache-2.0
// Parses the options of a program: command line over environment over file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options.h"

namespace program {

// Parses arguments without the program's name. `command` is generate for `minim`, whose first argument may name another one, or
// server. Returns nothing if --help, --version or the list of options was asked for; `output` is then what to print. Throws
// UsageError.
std::optional<Options> parse(Command command, std::vector<std::string> arguments, std::string& output);

}  // namespace program
