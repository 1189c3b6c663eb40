// SPDX-License-Identifier: Apache-2.0
// Reads the text that the user gave on the command line, in a file or on standard input.
#pragma once

#include <cstdint>
#include <string>

#include "options.h"

namespace cli {

// Returns the text's bytes unchanged. Throws minim::Exception (NOT_FOUND, IO) if the file cannot be read.
std::string input_text(const Options& options);

// Returns the text without a byte order mark at the start. Throws INVALID, naming the option or file and the byte, if the text is
// not UTF-8.
std::string prompt_text(const Options& options);

// Returns `text` without a byte order mark at the start. `source` names its origin in errors: "--system". Throws INVALID as
// prompt_text().
std::string utf8_text(std::string text, const std::string& source);

// Returns the MINIM_SPECIALS_* of a word of --specials.
int32_t specials_of(const std::string& mode);

}  // namespace cli
