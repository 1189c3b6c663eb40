// SPDX-License-Identifier: Apache-2.0
// Opens a runtime and a model with the options of the command line.
#pragma once

#include <string>

#include "minim/minim.hpp"
#include "options.h"

namespace cli {

// A runtime whose warnings, and with --verbose every line, go to standard error.
minim::Runtime open_runtime(const Options& options);

// Shows the progress on a terminal.
minim::Model open_model(const minim::Runtime& runtime, const Options& options, const minim::Cancel& cancel);

// The rules of -ot as one text.
std::string joined_overrides(const Options& options);

// What the devices' caches of experts did, if there are any.
void print_expert_caches(const minim::Model& model);

// Writes the file of --expert-profile, if one is named and a device has a cache.
void save_expert_profile(const minim::Model& model, const Options& options);

}  // namespace cli
