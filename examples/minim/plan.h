// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.h"

namespace cli {

// Plans where the weights of a checkpoint go, and how fast that is, on this or any other machine. Prints the plan.
void plan(const Options& options);

}  // namespace cli
