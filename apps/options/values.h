// SPDX-License-Identifier: Apache-2.0
// Reads the values of options.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "table.h"

namespace program {

// Reads a value of an option. `option`: its name as the user spelled it, which errors begin with. Throws UsageError.
Value read_value(const Row& row, std::string_view option, std::string_view text);

// Reads on, off, true, false, yes, no, 1 or 0. Returns nothing for other texts.
std::optional<bool> read_switch(std::string_view text);

// Returns whether `text` is what an option of another program takes behind it that has a switch: on, off, auto ...
bool is_switch(std::string_view text);

}  // namespace program
