// SPDX-License-Identifier: Apache-2.0
// The speed that a plan predicts for an opened model, beside the measured one.
#pragma once

#include <string>

#include "minim/minim.hpp"
#include "options.h"

namespace cli {

// Compares two speeds in tokens a second. Warns if the measured one is more than a quarter slower, unless a token takes so little
// time that starting work, which a plan knows roughly, decides it. A cache of experts that are used often is faster than
// predicted: a plan counts with even use.
std::string comparison(double measured, double predicted);

// Prints the decode speed that a plan predicts for the placement of the model, and compares the measured speed with it. Prints
// nothing if too few tokens were generated, or if a plan cannot describe the placement.
void print_prediction(const minim::Runtime& runtime, const minim::Model& model, const Options& options,
                      const minim::Session& session, const minim_generate_result& result);

}  // namespace cli
