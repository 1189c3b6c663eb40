// SPDX-License-Identifier: Apache-2.0
// The text the user gave on the command line, in a file or on standard input.
#pragma once

#include <string>

#include "options.h"

namespace cli {

// The bytes as they are. Throws minim::Exception (NOT_FOUND, IO) if the file cannot be read.
std::string input_text(const Options& options);

// The same without a byte order mark at the start. Throws INVALID, naming the option or file and the byte, if it is not UTF-8.
std::string prompt_text(const Options& options);

// `text` without a byte order mark at the start; `source` is where it comes from, "--system". Throws INVALID as prompt_text().
std::string utf8_text(std::string text, const std::string& source);

}  // namespace cli
