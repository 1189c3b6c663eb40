// SPDX-License-Identifier: Apache-2.0
// The options of other programs, in one list of each family. A list has a row for each reason and number of values.
#pragma once

#include <span>

#include "table.h"

namespace program {

std::span<const Foreign> llama_options();
std::span<const Foreign> python_options();

}  // namespace program
