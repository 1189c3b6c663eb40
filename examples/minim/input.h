// The text the user gave on the command line, in a file or on standard input.
#pragma once

#include <string>

#include "options.h"

namespace cli {

// Throws minim::Exception (NOT_FOUND, IO) where the file cannot be read.
std::string input_text(const Options& options);

}  // namespace cli
