// SPDX-License-Identifier: Apache-2.0
// One function per command; each throws minim::Exception if it fails.
#pragma once

#include "minim/minim.hpp"
#include "options.h"

namespace cli {

// Returns false if `cancel` ended the answer; the summary is printed in either case.
bool generate(const Options& options, const minim::Cancel& cancel);

void chat(const Options& options, const minim::Cancel& cancel);
void inspect(const Options& options);
void devices(const Options& options);
void tokenize(const Options& options, const minim::Cancel& cancel);
void perplexity(const Options& options, const minim::Cancel& cancel);
// Returns false if Ctrl-C ended the work; what is done so far is in the output file.
bool imatrix(const Options& options, const minim::Cancel& cancel);
void eval_kl(const Options& options, const minim::Cancel& cancel);
void eval_choice(const Options& options, const minim::Cancel& cancel);
void eval_compare(const Options& options);
void eval_needle(const Options& options, const minim::Cancel& cancel);
void eval_tools(const Options& options, const minim::Cancel& cancel);
// Plans where the weights of a checkpoint go, and how fast that is, on this or any other machine. Prints the plan.
void plan(const Options& options);
// Converts or quantises a checkpoint.
void convert(const Options& options, const minim::Cancel& cancel);

}  // namespace cli
