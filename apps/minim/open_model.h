// SPDX-License-Identifier: Apache-2.0
// Opens a runtime and a model with the options of the command line.
#pragma once

#include <string>

#include "minim/minim.hpp"
#include "options.h"

namespace cli {

// Opens a runtime that logs to standard error: warnings, and with --verbose all lines.
minim::Runtime open_runtime(const Options& options);

// The work of a process that follows another one is done: the other one prints the result.
struct FollowedToTheEnd {};

// Opens the model. Shows the progress on a terminal. If several processes share the model, those that do not lead compute for the one
// that does until it closes the model; then FollowedToTheEnd is thrown.
minim::Model open_model(const minim::Runtime& runtime, const Options& options, const minim::Cancel& cancel);

// Returns the options of a session with a context of n_context tokens.
minim::SessionOptions session_options(const Options& options, uint64_t n_context);

// Prints statistics of the devices' caches of experts, if there are any.
void print_expert_caches(const minim::Model& model);

// Writes the file of --expert-profile, if one is named and a device has a cache.
void save_expert_profile(const minim::Model& model, const Options& options);

}  // namespace cli
