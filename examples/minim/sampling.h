// SPDX-License-Identifier: Apache-2.0
// How the command line asks for tokens to be chosen.
#pragma once

#include "minim/minim.hpp"
#include "options.h"

namespace cli {

// What the checkpoint recommends, with what was asked for in its place.
minim::Sampling make_sampling(const minim::Model& model, const Options& options);

}  // namespace cli
