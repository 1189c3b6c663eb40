// SPDX-License-Identifier: Apache-2.0
// The options of the command line: those of apps/options.
#pragma once

#include "options/options.h"

namespace server {

using program::Options;
using program::SamplingDefaults;
using program::UsageError;

}  // namespace server
