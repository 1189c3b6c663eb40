// SPDX-License-Identifier: Apache-2.0
// The options of the command line: those of apps/options.
#pragma once

#include "options/options.h"

namespace cli {

using program::Command;
using program::Options;
using program::UsageError;

}  // namespace cli
