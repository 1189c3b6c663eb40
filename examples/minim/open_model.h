// A runtime and a model as the command line wants them.
#pragma once

#include "minim/minim.hpp"
#include "options.h"

namespace cli {

// A runtime whose warnings, and with --verbose every line, go to standard error.
minim::Runtime open_runtime(const Options& options);

// Shows the progress on a terminal.
minim::Model open_model(const minim::Runtime& runtime, const Options& options, const minim::Cancel& cancel);

}  // namespace cli
