// SPDX-License-Identifier: Apache-2.0
// The sampling that the command line requests.
#pragma once

#include "chat_prompt.h"
#include "minim/minim.hpp"
#include "options.h"

namespace cli {

// Returns the sampling that the checkpoint recommends, with the values of the command line's options instead where given.
minim::Sampling make_sampling(const minim::Model& model, const Options& options, Beginning beginning);

}  // namespace cli
